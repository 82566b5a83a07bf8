// How many registers the warpgroup that loads gives to those that compute.
#pragma once

#include "catalog.h"

namespace tcgemm::sm90 {

// Registers of a loading and of a computing thread. The pool is what a block is launched with: 168
// a thread at 384 threads, 128 at 512. Asking for more hangs the GPU, so it is checked here.
struct RegisterBudget {
  int entry, load, compute;
};

constexpr RegisterBudget register_budget(const GemmConfig& config) {
  if (config.warpgroups == 3) return {128, 32, 160};
  // f32 in single elements takes registers to load; a narrow tile has them.
  if (config.warpgroups == 2 && config.input == DType::f32 && config.n < 128) return {168, 56, 224};
  if (config.warpgroups == 2)
    return config.promotes() ? RegisterBudget{168, 24, 240} : RegisterBudget{168, 40, 232};
  return {0, 0, 0};  // 256 threads have 255 registers each from the start
}

}  // namespace tcgemm::sm90
