// The definition of the dense GEMM. Every other implementation is compared with it.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tcgemm::cpu {

// Runs a loop on the caller's threads: run(begin, end, grain, body, context) calls
// body(first, last, context) for disjoint ranges that cover [begin, end).
struct Parallel {
  int threads = 1;
  void (*run)(std::int64_t begin, std::int64_t end, std::int64_t grain,
              void (*body)(std::int64_t first, std::int64_t last, void* context),
              void* context) = nullptr;
};

// The instruction sets that the library is compiled for. Each includes the one before it.
enum class CpuFeatures : std::uint8_t { baseline, avx2, avx512 };

inline constexpr int kCpuFeatures = 3;

constexpr const char* name(CpuFeatures features) {
  constexpr const char* names[kCpuFeatures] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(features)];
}

// The best one that this machine supports.
CpuFeatures best_cpu_features();

// The one that gemm uses: TCGEMM_CPU_ISA if it is set at the first call, else the best. Throws if
// the variable has an unknown name, or the name of one that this machine does not support.
CpuFeatures active_cpu_features();

// The result of every element:
//
//   sum(i, j) = fma(a(i, K-1), b(K-1, j), ... fma(a(i, 1), b(1, j), fma(a(i, 0), b(0, j), +0)))
//   value     = activation(alpha * scale_a * scale_b * sum + beta * c + bias) + residual
//   out       = value * scale_out, rounded to out's type;  amax = max |value|
//
// Each element is one chain over ascending k that is never split. Each step is one fused
// multiply-add in the accumulator's type: f64 for f64 operands, f32 for other floats. An f16
// accumulator is an f32 chain that is rounded to f16 after every 16 steps and at the end. f32
// operands are first rounded to 10 mantissa bits if the input is tf32, and to bf16 if it is bf16.
//   Block scales: each 128 of k has a chain, and sum += (scale_a * scale_b) * chain follows it.
// Every operation is rounded to f32, and the scales are left out of `value`.
//   Integers of 8 and 4 bits: the sum of (a - zero_a) * (b - zero_b) is exact modulo 2^32, and is
// rounded to f32 for `value`. If out is s32, `value` is exact modulo 2^32 too.
//   b1: the operation of the bits (core/problem.h) is exact, and `out` is s32.
//
// The epilogue works in f32 (f64), rounds after each operation, and applies the terms in the order
// above. It neither reads nor adds an absent term, or c if beta is 0. Every rounding is to nearest
// even. fp8 and s8 results saturate. A NaN is stored as the positive quiet NaN without payload, as
// 0x7f in fp8 and as 0 in s8; amax is NaN if any value is. The bits depend on neither the
// instruction set nor the number of threads.
//
// Any strides are valid, and 0 for operands that are only read. `out` must share no memory with
// them, but may be c itself.
void gemm(const Problem& problem, const Parallel& parallel);
void gemm(const Problem& problem, const Parallel& parallel, CpuFeatures features);

}  // namespace tcgemm::cpu
