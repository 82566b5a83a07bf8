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
#include "ops/schema.h"
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
  bool constant_weight = false;  // of the operators _constant_..., and constant_b
  bool amax = false;             // explain and check_layout; other operators have it in their name

  // The packed weight of packed_mm.
  std::int64_t packed_n = 0, group_size = 0;
  std::string weight_format, weight_zeros;

  std::string_view filter() const { return kernel ? std::string_view(*kernel) : ""; }
  TensorHandle& operator[](Slot slot) { return tensors[slot]; }
  const TensorHandle& operator[](Slot slot) const { return tensors[slot]; }
};

// Reads the arguments in the order of the parameters. `out`: the .out overload, whose last argument
// is the result.
Arguments unbox(const ParameterList& parameters, bool out, std::uint64_t* stack);

struct QuantizeArguments {
  TensorHandle x;
  std::int32_t dtype = -1;  // torch's number
  std::string granularity;
  TensorHandle scale;  // quantize.scaled only
};

QuantizeArguments unbox_quantize(bool given, std::uint64_t* stack);

enum class SparseOp : std::uint8_t { compress, decompress, gather, prune, tile };

inline constexpr int kSparseOps = 5;

// The arguments of all 2:4 operators; each operator sets some of them.
struct SparseArguments {
  TensorHandle w, values, metadata;
  std::int64_t k = 0;
  std::string pattern;
  bool flag = false;        // `prune` of compress24, `transposable` of prune24
  std::int32_t dtype = -1;  // torch's number
};

SparseArguments unbox_sparse(SparseOp op, std::uint64_t* stack);

// The argument of prepare.
TensorHandle unbox_tensor(std::uint64_t* stack);

}  // namespace tcgemm::ops
