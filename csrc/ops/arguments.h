// The arguments of one call, unboxed from the dispatcher's stack.
//
// The stable ABI passes a stack of StableIValues, which are 64 bits each. torch::stable's own
// conversion leaks every string (torch 2.11) and allocates for every tensor, so it is not used. A
// value that is unboxed here has an owner at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ops/tensor.h"

namespace tcgemm::ops {

// The operator of a call. It decides which shapes are valid and how errors name the call.
enum class Op : std::uint8_t {
  mm,
  bmm,
  matmul,
  addmm,
  linear,
  gemm,
  scaled_mm,
  scaled_mm_amax,
  check_layout,
  explain
};

struct Arguments {
  TensorHandle a, b, c, bias, residual, scale_a, scale_b, zero_a, zero_b, scale_out;
  TensorHandle prepared_b, sparse_a, sparse_b, out;
  std::optional<std::string> activation, precision, kernel, device;
  std::optional<std::int32_t> out_dtype, acc_dtype;  // torch's numbers
  double alpha = 1.0;
  double beta = 1.0;
};

// Reads the arguments in the order of the schemas in library.cpp. `out`: the .out overload.
Arguments unbox(Op op, bool out, std::uint64_t* stack);
Arguments unbox_linear24(std::uint64_t* stack);

struct QuantizeArguments {
  TensorHandle x;
  std::int32_t dtype = -1;  // torch's number
  std::string granularity;
};

QuantizeArguments unbox_quantize(std::uint64_t* stack);

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

// The StableIValue of a returned string. torch 2.11 leaks its own copy of the string on the way to
// Python. Only explain, check_layout and build_info return one.
std::uint64_t box_string(const std::string& text);

}  // namespace tcgemm::ops
