// The operator prepare. It checks w, allocates the prepacked workspace, and calls a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "core/problem.h"
#include "ops/arguments.h"
#include "ops/target.h"

namespace tcgemm::ops {

// Splits operand b into `prepacked`, which has room for its bf16 terms, on the device of `w`.
using PrepackBackend = void (*)(const Problem& problem, const TensorHandle& prepacked,
                                const View& w);

// Returns an empty tensor if GEMMs read w itself: if K is short, or if `backend` is null.
TensorHandle prepack(const TensorHandle& w, Target target, PrepackBackend backend);

template <Target target, PrepackBackend backend>
void prepack_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  TensorHandle prepacked = prepack(unbox_tensor(stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(prepacked.release());
}

template <Target target, PrepackBackend backend>
void register_prepack(torch::stable::detail::StableLibrary& library) {
  library.impl("prepare", prepack_kernel<target, backend>);
}

}  // namespace tcgemm::ops
