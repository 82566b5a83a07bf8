// Unboxes the dispatcher's stack in the order of the parameters in schema.h.
#include "ops/arguments.h"

#include <torch/csrc/stable/c/shim.h>

#include <bit>

namespace tcgemm::ops {
namespace {

// Reads the values from left to right. An optional value is null or points to a StableIValue, which
// the reader deletes.
class StackReader {
 public:
  explicit StackReader(std::uint64_t* stack) : next_(stack) {}

  TensorHandle tensor() { return TensorHandle(reinterpret_cast<AtenTensorHandle>(*next_++)); }
  double real() { return std::bit_cast<double>(*next_++); }

  TensorHandle optional_tensor() {
    std::uint64_t value = 0;
    return TensorHandle(optional(value) ? reinterpret_cast<AtenTensorHandle>(value) : nullptr);
  }

  std::optional<std::int32_t> optional_dtype() {
    std::uint64_t value = 0;
    if (!optional(value)) return std::nullopt;
    return static_cast<std::int32_t>(value);
  }

  std::int64_t integer() { return static_cast<std::int64_t>(*next_++); }
  bool flag() { return static_cast<std::uint8_t>(*next_++) != 0; }
  std::int32_t dtype() { return static_cast<std::int32_t>(*next_++); }
  std::string string() { return unbox_and_free(*next_++); }

  std::optional<std::string> optional_string() {
    std::uint64_t value = 0;
    if (!optional(value)) return std::nullopt;
    return unbox_and_free(value);
  }

 private:
  static std::string unbox_and_free(std::uint64_t value) {
    const auto handle = reinterpret_cast<StringHandle>(value);
    const char* text = "";
    std::size_t length = 0;
    torch_string_length(handle, &length);
    torch_string_c_str(handle, &text);
    std::string copy(text, length);
    torch_delete_string(handle);
    return copy;
  }

  bool optional(std::uint64_t& value) {
    const std::unique_ptr<std::uint64_t> box(reinterpret_cast<std::uint64_t*>(*next_++));
    if (box) value = *box;
    return box != nullptr;
  }

  std::uint64_t* next_;
};

void read_option(Option option, StackReader& reader, Arguments& arguments) {
  switch (option) {
    case Option::activation:
      arguments.activation = reader.optional_string();
      break;
    case Option::alpha:
      arguments.alpha = reader.real();
      break;
    case Option::beta:
      arguments.beta = reader.real();
      break;
    case Option::out_dtype:
      arguments.out_dtype = reader.optional_dtype();
      break;
    case Option::acc_dtype:
      arguments.acc_dtype = reader.optional_dtype();
      break;
    case Option::precision:
      arguments.precision = reader.optional_string();
      break;
    case Option::amax:
      arguments.amax = reader.flag();
      break;
    case Option::device:
      arguments.device = reader.optional_string();
      break;
    case Option::kernel:
      arguments.kernel = reader.optional_string();
      break;
  }
}

}  // namespace

Arguments unbox(const ParameterList& parameters, bool out, std::uint64_t* stack) {
  StackReader reader(stack);
  Arguments arguments;
  for (const Parameter& parameter : parameters) {
    switch (parameter.kind) {
      case Parameter::Kind::tensor:
        arguments[parameter.slot] = reader.tensor();
        break;
      case Parameter::Kind::optional_tensor:
        arguments[parameter.slot] = reader.optional_tensor();
        break;
      case Parameter::Kind::option:
        read_option(parameter.option, reader, arguments);
        break;
      case Parameter::Kind::keywords:
        break;
    }
  }
  if (out) arguments[Slot::out] = reader.tensor();
  return arguments;
}

QuantizeArguments unbox_quantize(std::uint64_t* stack) {
  StackReader reader(stack);
  QuantizeArguments arguments;
  arguments.x = reader.tensor();
  arguments.dtype = reader.dtype();
  arguments.granularity = reader.string();
  return arguments;
}

SparseArguments unbox_sparse(SparseOp op, std::uint64_t* stack) {
  StackReader reader(stack);
  SparseArguments arguments;
  if (op == SparseOp::compress || op == SparseOp::prune) {
    arguments.w = reader.tensor();
    arguments.pattern = reader.string();
    arguments.flag = reader.flag();
    return arguments;
  }
  if (op == SparseOp::gather) arguments.w = reader.tensor();
  if (op == SparseOp::decompress) arguments.values = reader.tensor();
  arguments.metadata = reader.tensor();
  if (op != SparseOp::gather) arguments.k = reader.integer();
  arguments.pattern = reader.string();
  if (op == SparseOp::tile) arguments.dtype = reader.dtype();
  return arguments;
}

TensorHandle unbox_tensor(std::uint64_t* stack) { return StackReader(stack).tensor(); }

}  // namespace tcgemm::ops
