// quantize: check, allocate, hand to a backend, as dense.h does for products.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "core/quantize.h"
#include "ops/arguments.h"

namespace tcgemm::ops {

struct Quantized {
  TensorHandle values, scale;
};

// `x` is on the device that computes it.
using RunQuantize = void (*)(const Quantization& quantization, const View& x);

Quantized quantize(const QuantizeArguments& arguments, RunQuantize run);

// What a backend does for one call.
using Quantize = Quantized (*)(const QuantizeArguments& arguments);

template <Quantize function>
void quantize_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  Quantized results = function(unbox_quantize(stack));
  stack[0] = reinterpret_cast<std::uint64_t>(results.values.release());
  stack[1] = reinterpret_cast<std::uint64_t>(results.scale.release());
}

template <Quantize function>
void register_quantize(torch::stable::detail::StableLibrary& library) {
  library.impl("quantize", quantize_kernel<function>);
}

}  // namespace tcgemm::ops
