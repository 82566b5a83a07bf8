// Conversions of f16 by F16C, for the versions that have it. Like microkernel.h it is compiled once
// for each, after the version's target pragma, and so stays in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include "cpu/rows.h"

namespace tcgemm::cpu {
namespace {

struct Machine {
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
