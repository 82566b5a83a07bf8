// The operators quantize and quantize.scaled. Each checks its arguments, allocates the results,
// and calls a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "core/quantize.h"
#include "ops/arguments.h"
#include "ops/target.h"

namespace tcgemm::ops {

struct QuantizeResults {
  TensorHandle values;
  TensorHandle groups;  // a number for each group: its scale, or amax of quantize.scaled
};

// Computes on the device of `x`.
using QuantizeBackend = void (*)(const Quantization& quantization, const View& x);

// Target::none throws before it calls `backend`, which may then be null.
QuantizeResults quantize(const QuantizeArguments& arguments, Target target,
                         QuantizeBackend backend);

template <Target target, QuantizeBackend backend, bool given>
void quantize_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  QuantizeResults results = quantize(unbox_quantize(given, stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(results.values.release());
  stack[1] = reinterpret_cast<std::uint64_t>(results.groups.release());
}

template <Target target, QuantizeBackend backend>
void register_quantize(torch::stable::detail::StableLibrary& library) {
  library.impl("quantize", quantize_kernel<target, backend, false>);
  library.impl("quantize.scaled", quantize_kernel<target, backend, true>);
}

}  // namespace tcgemm::ops
