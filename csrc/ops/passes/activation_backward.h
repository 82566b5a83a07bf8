// The operators _sum_rows and _activation_backward. They check their arguments, allocate the
// results, and call a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/activation_backward.h"
#include "ops/target.h"
#include "ops/tensor.h"

namespace tcgemm::ops {

// Computes on the device of `g`.
using ActivationBackwardBackend = void (*)(const ActivationBackward& task, const View& g);

// The arguments of both operators; _sum_rows has neither z nor activation nor dtype.
struct ActivationBackwardArguments {
  TensorHandle g, z;
  std::string activation;
  std::int32_t dtype = -1;  // torch's number
  std::optional<std::int32_t> sum_dtype;
};

struct ActivationBackwardResults {
  TensorHandle gz;  // null for _sum_rows
  TensorHandle sums;
};

ActivationBackwardArguments unbox_sum_rows(std::uint64_t* stack);
ActivationBackwardArguments unbox_activation_backward(std::uint64_t* stack);

// Target::none throws before it calls `backend`, which may then be null.
ActivationBackwardResults activation_backward(const ActivationBackwardArguments& arguments,
                                              Target target, ActivationBackwardBackend backend);

template <Target target, ActivationBackwardBackend backend>
void sum_rows_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  ActivationBackwardResults results = activation_backward(unbox_sum_rows(stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(results.sums.release());
}

template <Target target, ActivationBackwardBackend backend>
void activation_backward_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  ActivationBackwardResults results =
      activation_backward(unbox_activation_backward(stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(results.gz.release());
  stack[1] = reinterpret_cast<std::uint64_t>(results.sums.release());
}

template <Target target, ActivationBackwardBackend backend>
void register_activation_backward(torch::stable::detail::StableLibrary& library) {
  library.impl("_sum_rows", sum_rows_kernel<target, backend>);
  library.impl("_activation_backward", activation_backward_kernel<target, backend>);
}

}  // namespace tcgemm::ops
