// The inner loops for AVX2: 4 x 24 sums of f32 (4 x 12 of f64) in 12 of the 16 registers.
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
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#include "cpu/f16c.h"
#include "cpu/microkernel.h"

namespace tcgemm::cpu {
namespace {

struct F32 {
  using Scalar = float;
  using Vector = __m256;
  static constexpr int kWidth = 8;
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector x) { _mm256_storeu_ps(p, x); }
  static Vector broadcast(const float* p) { return _mm256_set1_ps(*p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector round_f16(Vector x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct F64 {
  using Scalar = double;
  using Vector = __m256d;
  static constexpr int kWidth = 4;
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector x) { _mm256_storeu_pd(p, x); }
  static Vector broadcast(const double* p) { return _mm256_set1_pd(*p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

}  // namespace

constinit const KernelSet kAvx2Kernels = {kernels<F16Conversion, F32, 4, 3>(),
                                          kernels<F16Conversion, F64, 4, 3>()};

}  // namespace tcgemm::cpu

#ifdef __clang__
#pragma clang attribute pop
#endif
