// The inner loops for AVX-512: 12 x 32 sums of f32 (12 x 16 of f64) in 24 of the 32 registers.
//
// Every header precedes the pragma. The linker keeps any one copy of an inline function of the
// standard library, so each copy must be plain x86-64.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/convert.h"
#include "cpu/kernels.h"

#ifdef __clang__
#pragma clang attribute push(                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#include "cpu/f16c.h"
#include "cpu/microkernel.h"

namespace tcgemm::cpu {
namespace {

struct F32 {
  using Scalar = float;
  using Vector = __m512;
  static constexpr int kWidth = 16;
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector x) { _mm512_storeu_ps(p, x); }
  static Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector round_f16(Vector x) {
    // The forms without a mask use an undefined vector, and GCC 12 warns of it.
    constexpr __mmask16 all = 0xffff;
    return _mm512_maskz_cvtph_ps(all, _mm512_maskz_cvtps_ph(all, x, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct F64 {
  using Scalar = double;
  using Vector = __m512d;
  static constexpr int kWidth = 8;
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Vector x) { _mm512_storeu_pd(p, x); }
  static Vector broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
};

}  // namespace

constinit const KernelSet kAvx512Kernels = {kernels<F16Conversion, F32, 12, 2>(),
                                            kernels<F16Conversion, F64, 12, 2>()};

}  // namespace tcgemm::cpu

#ifdef __clang__
#pragma clang attribute pop
#endif
