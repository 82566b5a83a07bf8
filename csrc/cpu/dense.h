// The definition of the dense product: what every other implementation is compared with.
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

// Instruction sets that the library has a version for; the machine's best is taken at run time.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };
Isa best_isa();
const char* name(Isa isa);

// out = activation(alpha * (a @ b) + beta * c + bias) + residual, the same bits on every Isa and for
// every number of threads. f16 and bf16 accumulate in f32 in ascending k, one fused multiply-add a
// product; f32 and f64 in their own type; an f16 accumulator is rounded to f16 after every 16 products.
void gemm(const Problem& problem, const Parallel& parallel);
void gemm(const Problem& problem, const Parallel& parallel, Isa isa);

}  // namespace tcgemm::cpu
