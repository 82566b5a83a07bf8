// The definition of the dense product: what every other implementation is compared with.
//
//   sum(i, j) = fma(a(i, K-1), b(K-1, j), ... fma(a(i, 1), b(1, j), fma(a(i, 0), b(0, j), +0)))
//   value     = activation(alpha * scale_a * scale_b * sum + beta * c + bias) + residual
//   out       = value * scale_out, rounded to out's type;  amax = max |value|
//
// One chain per element, k ascending and never split, each step one fused multiply-add in the
// accumulator's type: f64 for f64 operands, f32 for other floats. An f16 accumulator is such an f32
// chain that is rounded to f16 after every 16 products and at the end. f32 operands are first
// rounded to 10 bits of mantissa where the input is tf32, and to bf16 where it is bf16.
//   Blocks of scales: a chain for each 128 of k, and sum += (scale_a * scale_b) * chain after each,
// every operation rounded to f32; they stand in the value no more.
//   8-bit integers: the exact sum of (a - zero_a) * (b - zero_b) modulo 2^32, which enters the
// value rounded to f32. Where out is s32, the value too is exact modulo 2^32.
//
// The epilogue works in f32 (f64), rounds after each operation, and takes the terms in the order in
// which they stand above; a term that is absent, and c where beta is 0, is neither read nor added.
// Every rounding is to nearest even. fp8 and s8 results saturate. A NaN is stored as the positive
// quiet NaN without payload, 0x7f in fp8 and 0 in s8; where there is one, amax is NaN. So the bits
// depend on neither the instruction set nor the number of threads.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tcgemm::cpu {

// How to run a loop on the caller's threads: run(begin, end, grain, body, context) calls
// body(first, last, context) over disjoint ranges that cover [begin, end).
struct Parallel {
  int threads = 1;
  void (*run)(std::int64_t begin, std::int64_t end, std::int64_t grain,
              void (*body)(std::int64_t first, std::int64_t last, void* context),
              void* context) = nullptr;
};

// Instruction sets that the library has a version for, each with all that the one before it has.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };

inline constexpr int kIsas = 3;

constexpr const char* name(Isa isa) {
  constexpr const char* names[kIsas] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

// The best that this machine runs.
Isa best_isa();

// What gemm uses: TCGEMM_CPU_ISA if it is set when this is first called, else the best. Throws if
// the variable holds no instruction set's name, or one that this machine does not run.
Isa active_isa();

// Strides may be anything, also 0 for what is only read; out shares no memory with the rest.
void gemm(const Problem& problem, const Parallel& parallel);
void gemm(const Problem& problem, const Parallel& parallel, Isa isa);

}  // namespace tcgemm::cpu
