// The arguments of one call, unboxed from the dispatcher's stack.
//
// The stable ABI passes a stack of StableIValues, which are 64 bits each. torch::stable's own
// conversion leaks every string (torch 2.11) and allocates for every tensor, so it is not used. A
// value that is unboxed here has an owner at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/operands.h"
#include "ops/operator.h"
#include "ops/tensor.h"

namespace tcgemm::ops {

struct Arguments {
  PerSlot<TensorHandle> tensors;
  std::optional<std::string> activation, precision, kernel, device;
  std::optional<std::string> types;                  // of sub-byte operands, "s4,u4"
  std::optional<std::string> operation;              // of b1 operands, "xor"
  std::int64_t k = -1;                               // of b1 operands; -1: all bits of the bytes
  std::optional<std::int32_t> out_dtype, acc_dtype;  // torch's numbers
  double alpha = 1.0;
  double beta = 1.0;
  bool batch_invariant = false;
  bool one_slice = false;   // of a batch-invariant product
  bool constant_b = false;  // the kernel before does not write b
  bool amax = false;        // of explain and check_layout
  bool accumulate = false;  // of grouped_mm: adds the product to out

  // The packed weight of packed_mm.
  std::int64_t packed_n = 0, group_size = 0;
  std::string weight_format, weight_zeros;

  std::string_view filter() const { return kernel ? std::string_view(*kernel) : ""; }
  TensorHandle& operator[](Slot slot) { return tensors[slot]; }
  const TensorHandle& operator[](Slot slot) const { return tensors[slot]; }
};

// "Tensor a, Tensor b, *, float alpha=1.0"
std::string schema(const ParameterList& parameters);

// Reads the arguments of a product.
Arguments unbox(const Call& call);

}  // namespace tcgemm::ops
