// The arguments of one call, taken from the dispatcher's stack.
//
// The stable ABI hands over a stack of 64-bit words. torch::stable's own conversion leaks every
// string (torch 2.11) and allocates for every tensor, so the words are read here: each is owned
// from the moment it is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ops/tensor.h"

namespace tcgemm::ops {

// What the caller asked for: it decides the shapes that are welcome and the words of the errors.
enum class Op : std::uint8_t {
  mm,
  bmm,
  matmul,
  addmm,
  linear,
  gemm,
  scaled,
  scaled_amax,
  layout,
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

// `out`: the overload that writes into a tensor of the caller's. The order is that of library.cpp.
Arguments unbox(Op op, bool out, std::uint64_t* stack);
Arguments unbox_linear24(std::uint64_t* stack);

// The arguments of quantize.
struct QuantizeArguments {
  TensorHandle x;
  std::int32_t dtype = -1;  // torch's number
  std::string granularity;
};

QuantizeArguments unbox_quantize(std::uint64_t* stack);

enum class SparseOp : std::uint8_t { compress, decompress, gather, prune, tile };

inline constexpr int kSparseOps = 5;

// The arguments of the operators of structured sparsity; each takes some of them.
struct SparseArguments {
  TensorHandle w, values, metadata;
  std::int64_t k = 0;
  std::string pattern;
  bool flag = false;        // prune of compress24, transposable of prune24
  std::int32_t dtype = -1;  // torch's number
};

SparseArguments unbox_sparse(SparseOp op, std::uint64_t* stack);

// The one tensor of prepare.
TensorHandle unbox_tensor(std::uint64_t* stack);

// The word that returns a text. (torch 2.11 leaks its own copy on the way to Python; it is the
// price of an answer for people, and no product returns one.)
std::uint64_t box_string(const std::string& text);

}  // namespace tcgemm::ops
