// The inner loops for plain x86-64. It has no fused multiply-add, so this file emulates it: in f64
// arithmetic for f32, with std::fma for f64.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/microkernel.h"

namespace tcgemm::cpu {
namespace {

struct F16Conversion {
  static void widen(const Half* p, Quad<float>& q) {
    for (int i = 0; i < 4; ++i) q[i] = cpu::widen(p[i]);
  }
  static void narrow(const Quad<float>& q, Half* p) {
    for (int i = 0; i < 4; ++i) cpu::narrow(q[i], p[i]);
  }
};

struct F32 {
  using Scalar = float;
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static Vector load(const float* p) {
    Vector x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(float* p, Vector x) { std::memcpy(p, &x, sizeof x); }
  static Vector broadcast(const float* p) { return Vector{*p, *p, *p, *p}; }
  static Vector fma(Vector a, Vector b, Vector c) {
    const Pair low = fma(first(a), first(b), first(c));
    const Pair high = fma(second(a), second(b), second(c));
    return __builtin_shufflevector(__builtin_convertvector(low, HalfVector),
                                   __builtin_convertvector(high, HalfVector), 0, 1, 2, 3);
  }
  static Vector round_f16(Vector x) {
    for (int i = 0; i < 4; ++i) {
      Half rounded;
      narrow(x[i], rounded);
      x[i] = cpu::widen(rounded);
    }
    return x;
  }

 private:
  typedef float HalfVector __attribute__((vector_size(8)));
  typedef double Pair __attribute__((vector_size(16)));
  typedef std::uint64_t BitsPair __attribute__((vector_size(16)));

  static Pair first(Vector x) {
    return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), Pair);
  }
  static Pair second(Vector x) {
    return __builtin_convertvector(__builtin_shufflevector(x, x, 2, 3), Pair);
  }

  // a * b + c of f32 numbers, rounded to odd: if the sum is inexact and its last bit is even, it
  // moves one step towards the exact value. Rounding that to f32 equals rounding once (Boldo and
  // Melquiond, 2008), since f64 has more than two bits to spare.
  static Pair fma(Pair a, Pair b, Pair c) {
    const Pair product = a * b;  // exact: 48 bits
    const Pair sum = product + c;
    const Pair addend = sum - product;
    const Pair error = (product - (sum - addend)) + (c - addend);
    const BitsPair inexact =
        BitsPair((error < 0) | (error > 0));  // 0 if the error is NaN: then sum is Inf or NaN
    BitsPair bits = BitsPair(sum);
    const BitsPair even_mask = (bits & 1) - 1;
    const BitsPair toward_zero =
        (bits ^ BitsPair(error)) >> 63;  // 1 if the exact value is nearer to zero
    bits += (1 - 2 * toward_zero) & even_mask & inexact;
    return Pair(bits);
  }
};

struct F64 {
  using Scalar = double;
  typedef double Vector __attribute__((vector_size(16)));
  static constexpr int kWidth = 2;
  static Vector load(const double* p) { return Vector{p[0], p[1]}; }
  static void store(double* p, Vector x) { std::memcpy(p, &x, sizeof x); }
  static Vector broadcast(const double* p) { return Vector{*p, *p}; }
  static Vector fma(Vector a, Vector b, Vector c) {
    return Vector{std::fma(a[0], b[0], c[0]), std::fma(a[1], b[1], c[1])};
  }
};

}  // namespace

constinit const KernelSet kBaselineKernels = {kernels<F16Conversion, F32, 4, 2>(),
                                              kernels<F16Conversion, F64, 4, 2>()};

}  // namespace tcgemm::cpu
