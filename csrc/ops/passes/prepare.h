// The operator prepare. It checks w, allocates the prepared workspace, and calls a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "core/problem.h"
#include "ops/arguments.h"
#include "ops/target.h"

namespace tcgemm::ops {

// Splits operand b into `prepared`, which has room for its bf16 terms, on the device of `w`.
using PrepareBackend = void (*)(const Problem& problem, const TensorHandle& prepared,
                                const View& w);

// Returns an empty tensor if GEMMs read w itself: if K is short, or if `backend` is null.
TensorHandle prepare(const TensorHandle& w, Target target, PrepareBackend backend);

template <Target target, PrepareBackend backend>
void prepare_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  TensorHandle prepared = prepare(unbox_tensor(stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(prepared.release());
}

template <Target target, PrepareBackend backend>
void register_prepare(torch::stable::detail::StableLibrary& library) {
  library.impl("prepare", prepare_kernel<target, backend>);
}

}  // namespace tcgemm::ops
