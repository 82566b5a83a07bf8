// Reads the dispatcher's stack in the order of the schemas in library.cpp.
#include "ops/arguments.h"

#include <torch/csrc/stable/c/shim.h>

#include <bit>

namespace tcgemm::ops {
namespace {

// Words from left to right. An optional value is null or points to a word that is ours to delete.
class Stack {
 public:
  explicit Stack(std::uint64_t* words) : next_(words) {}

  // Reads the next one into each, in their order.
  template <class... Tensors>
  void optional_tensors(Tensors&... tensors) {
    ((tensors = optional_tensor()), ...);
  }

  TensorHandle tensor() { return TensorHandle(reinterpret_cast<AtenTensorHandle>(*next_++)); }
  double number() { return std::bit_cast<double>(*next_++); }

  TensorHandle optional_tensor() {
    std::uint64_t word = 0;
    return TensorHandle(optional(word) ? reinterpret_cast<AtenTensorHandle>(word) : nullptr);
  }

  std::optional<std::int32_t> optional_dtype() {
    std::uint64_t word = 0;
    if (!optional(word)) return std::nullopt;
    return static_cast<std::int32_t>(word);
  }

  std::int64_t integer() { return static_cast<std::int64_t>(*next_++); }
  bool flag() { return static_cast<std::uint8_t>(*next_++) != 0; }
  std::int32_t dtype() { return static_cast<std::int32_t>(*next_++); }
  std::string text() { return owned_text(*next_++); }

  std::optional<std::string> optional_text() {
    std::uint64_t word = 0;
    if (!optional(word)) return std::nullopt;
    return owned_text(word);
  }

 private:
  static std::string owned_text(std::uint64_t word) {
    const auto handle = reinterpret_cast<StringHandle>(word);
    const char* text = "";
    std::size_t length = 0;
    torch_string_length(handle, &length);
    torch_string_c_str(handle, &text);
    std::string copy(text, length);
    torch_delete_string(handle);
    return copy;
  }

  bool optional(std::uint64_t& word) {
    const std::unique_ptr<std::uint64_t> box(reinterpret_cast<std::uint64_t*>(*next_++));
    if (box) word = *box;
    return box != nullptr;
  }

  std::uint64_t* next_;
};

}  // namespace

Arguments unbox(Op op, bool out, std::uint64_t* words) {
  const bool scaled = op == Op::scaled || op == Op::scaled_amax;
  const bool question = op == Op::layout || op == Op::explain;
  Stack stack(words);
  Arguments given;
  if (op == Op::addmm) given.c = stack.tensor();
  given.a = stack.tensor();
  given.b = stack.tensor();
  if (scaled) stack.optional_tensors(given.scale_a, given.scale_b);
  if (scaled || op == Op::gemm) given.c = stack.optional_tensor();
  stack.optional_tensors(given.bias, given.residual);
  if (scaled) stack.optional_tensors(given.zero_a, given.zero_b, given.scale_out);
  if (question) stack.optional_tensors(given.scale_a, given.scale_b);
  if (scaled || question) stack.optional_tensors(given.prepared_b, given.sparse_a, given.sparse_b);
  if (op == Op::addmm) {
    given.beta = stack.number();
    given.alpha = stack.number();
  }
  given.activation = stack.optional_text();
  if (op != Op::addmm) given.alpha = stack.number();
  if (scaled || op == Op::gemm) given.beta = stack.number();
  given.out_dtype = stack.optional_dtype();
  given.acc_dtype = stack.optional_dtype();
  given.precision = stack.optional_text();
  if (question) {
    given.out = stack.optional_tensor();
    given.device = stack.optional_text();
  }
  if (question || scaled || op == Op::gemm) given.kernel = stack.optional_text();
  if (out) given.out = stack.tensor();
  return given;
}

Arguments unbox_linear24(std::uint64_t* words) {
  Stack stack(words);
  Arguments given;
  given.b = stack.tensor();
  given.sparse_b = stack.tensor();
  given.a = stack.tensor();
  given.bias = stack.optional_tensor();
  return given;
}

QuantizeArguments unbox_quantize(std::uint64_t* words) {
  Stack stack(words);
  QuantizeArguments given;
  given.x = stack.tensor();
  given.dtype = stack.dtype();
  given.granularity = stack.text();
  return given;
}

SparseArguments unbox_sparse(SparseOp op, std::uint64_t* words) {
  Stack stack(words);
  SparseArguments given;
  if (op == SparseOp::compress || op == SparseOp::prune) {
    given.w = stack.tensor();
    given.pattern = stack.text();
    given.flag = stack.flag();
    return given;
  }
  if (op == SparseOp::gather) given.w = stack.tensor();
  if (op == SparseOp::decompress) given.values = stack.tensor();
  given.metadata = stack.tensor();
  if (op != SparseOp::gather) given.k = stack.integer();
  given.pattern = stack.text();
  if (op == SparseOp::tile) given.dtype = stack.dtype();
  return given;
}

TensorHandle unbox_tensor(std::uint64_t* words) { return Stack(words).tensor(); }

std::uint64_t box_string(const std::string& text) {
  StringHandle handle = nullptr;
  if (torch_new_string_handle(text.data(), text.size(), &handle) != 0)
    fail("tcgemm: torch could not take over a text of ", std::int64_t(text.size()), " characters.");
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace tcgemm::ops
