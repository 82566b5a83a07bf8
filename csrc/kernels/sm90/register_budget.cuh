// The registers that setmaxnreg moves from the producer warpgroup to the consumer warpgroups.
#pragma once

#include "catalog.h"

namespace tcgemm::sm90 {

// Registers of a thread: at entry, in the producer and in a consumer warpgroup. The pool is what
// the CTA is launched with: 168 a thread for 384 threads, 128 for 512 or where two CTAs of 256
// share a multiprocessor, and 96 for 640. A request beyond the pool hangs the GPU, so kernel.cuh
// checks the sum.
struct RegisterBudget {
  int entry, load, compute;
};

constexpr RegisterBudget register_budget(const GemmConfig& config) {
  if (config.k_groups() > 1) return {96, 32, 112};
  if (config.warpgroups == 3) return {128, 32, 160};
  if (config.least_ctas() == 2) return {128, 24, 232};
  // Warps of the producer write terms.
  if (config.is_tf32x2() && config.warpgroups == 2) return {168, 40, 232};
  // A warp of the producer finds the tiles.
  if (config.is_grouped() && config.warpgroups == 2) return {168, 40, 232};
  // The FP32 producer copies single elements and needs more registers. Narrow tiles have them.
  if (config.warpgroups == 2 && config.input == DType::f32 && config.n < 128) return {168, 56, 224};
  if (config.warpgroups == 2)
    return config.uses_tma() ? RegisterBudget{168, 24, 240} : RegisterBudget{168, 40, 232};
  return {0, 0, 0};  // 256 threads have 255 registers each at entry
}

}  // namespace tcgemm::sm90
