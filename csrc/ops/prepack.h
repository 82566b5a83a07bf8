// prepare: check, allocate, hand to a backend, as dense.h does for products.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "core/problem.h"
#include "ops/arguments.h"

namespace tcgemm::ops {

// Makes the blob of problem.b, with room for bf16 parts, on the device of `w`.
using RunPrepare = void (*)(const Problem& problem, const TensorHandle& prepacked, const View& w);

// Without bytes where products read w as it is: of a short K, and where `run` is null.
TensorHandle prepare(const TensorHandle& w, RunPrepare run);

// What a backend does for one call.
using PrepareOne = TensorHandle (*)(const TensorHandle& w);

template <PrepareOne function>
void prepare_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  stack[0] = reinterpret_cast<std::uint64_t>(function(unbox_tensor(stack)).release());
}

template <PrepareOne function>
void register_prepare(torch::stable::detail::StableLibrary& library) {
  library.impl("prepare", prepare_kernel<function>);
}

}  // namespace tcgemm::ops
