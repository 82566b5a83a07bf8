// Reads the arguments of an operator from the dispatcher's stack, in the order of its schema.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ops/tensor.h"

namespace tcgemm::ops {

// An optional value is null or points to a StableIValue, which the reader deletes. Strings and
// lists are copied and freed: torch 2.11's own conversion of a string leaks it.
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

}  // namespace tcgemm::ops
