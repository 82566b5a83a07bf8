// f16 conversions by F16C, for AVX2 and AVX-512. Like microkernel.h, this file is compiled once per
// instruction set after its target pragma, so everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include "cpu/rows.h"

namespace tcgemm::cpu {
namespace {

struct F16Conversion {
  static void widen(const Half* p, Quad<float>& q) {
    __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    q = _mm_cvtph_ps(bits);
  }
  static void narrow(const Quad<float>& q, Half* p) {
    const __m128i bits = _mm_cvtps_ph(q, _MM_FROUND_TO_NEAREST_INT);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bits);
  }
};

}  // namespace
}  // namespace tcgemm::cpu
