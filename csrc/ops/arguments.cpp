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

  Handle tensor() { return Handle(reinterpret_cast<AtenTensorHandle>(*next_++)); }
  double number() { return std::bit_cast<double>(*next_++); }

  Handle optional_tensor() {
    std::uint64_t word = 0;
    return Handle(optional(word) ? reinterpret_cast<AtenTensorHandle>(word) : nullptr);
  }

  std::optional<std::int32_t> optional_dtype() {
    std::uint64_t word = 0;
    if (!optional(word)) return std::nullopt;
    return static_cast<std::int32_t>(word);
  }

  std::optional<std::string> optional_text() {
    std::uint64_t word = 0;
    if (!optional(word)) return std::nullopt;
    const auto handle = reinterpret_cast<StringHandle>(word);
    const char* text = "";
    std::size_t length = 0;
    torch_string_length(handle, &length);
    torch_string_c_str(handle, &text);
    std::string copy(text, length);
    torch_delete_string(handle);
    return copy;
  }

 private:
  bool optional(std::uint64_t& word) {
    const std::unique_ptr<std::uint64_t> box(reinterpret_cast<std::uint64_t*>(*next_++));
    if (box) word = *box;
    return box != nullptr;
  }

  std::uint64_t* next_;
};

}  // namespace

Arguments take(Op op, bool out, std::uint64_t* words) {
  Stack stack(words);
  Arguments arguments;
  if (op == Op::addmm) arguments.c = stack.tensor();
  arguments.a = stack.tensor();
  arguments.b = stack.tensor();
  if (op == Op::gemm) arguments.c = stack.optional_tensor();
  arguments.bias = stack.optional_tensor();
  arguments.residual = stack.optional_tensor();
  if (op == Op::addmm) {
    arguments.beta = stack.number();
    arguments.alpha = stack.number();
  }
  arguments.activation = stack.optional_text();
  if (op != Op::addmm) arguments.alpha = stack.number();
  if (op == Op::gemm) arguments.beta = stack.number();
  arguments.out_dtype = stack.optional_dtype();
  arguments.acc_dtype = stack.optional_dtype();
  if (op == Op::layout || op == Op::explain) {
    arguments.out = stack.optional_tensor();
    arguments.device = stack.optional_text();
  }
  if (op == Op::gemm || op == Op::layout || op == Op::explain)
    arguments.kernel = stack.optional_text();
  if (out) arguments.out = stack.tensor();
  return arguments;
}

std::uint64_t give(const std::string& text) {
  StringHandle handle = nullptr;
  if (torch_new_string_handle(text.data(), text.size(), &handle) != 0)
    fail("tcgemm: torch could not take over a text of ", std::int64_t(text.size()), " characters.");
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace tcgemm::ops
