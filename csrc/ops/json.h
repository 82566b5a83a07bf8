// The answers of the operators that describe, such as explain: JSON in a uint8 tensor.
//
// torch 2.11 leaks its own copy of every string that an operator returns. It frees a tensor.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/operator.h"

namespace tcgemm::ops {

// The text in quotes, with escapes.
std::string json_string(std::string_view text);
// The shortest text that reads as the same number; null if it is not finite.
std::string json_number(double number);

// An absent std::optional is null. Anything with a member json() is written by it.
template <class T>
std::string to_json(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::integral<T>)
    return std::to_string(value);
  else if constexpr (std::floating_point<T>)
    return json_number(value);
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return json_string(value);
  else if constexpr (std::ranges::range<T>) {
    std::string items;
    for (const auto& item : value) items += (items.empty() ? "" : ", ") + to_json(item);
    return "[" + items + "]";
  } else if constexpr (requires { value.has_value(); })
    return value ? to_json(*value) : "null";
  else
    return value.json();
}

class JsonArray {
 public:
  template <class T>
  JsonArray& add(const T& value) {
    items_ += (items_.empty() ? "" : ", ") + to_json(value);
    return *this;
  }
  std::string json() const { return "[" + items_ + "]"; }

 private:
  std::string items_;
};

class JsonObject {
 public:
  template <class T>
  JsonObject& add(std::string_view key, const T& value) {
    items_ += (items_.empty() ? "" : ", ") + json_string(key) + ": " + to_json(value);
    return *this;
  }
  std::string json() const { return "{" + items_ + "}"; }

 private:
  std::string items_;
};

// A new CPU tensor with these bytes, as the result of an operator.
Results text_result(std::string_view text);

}  // namespace tcgemm::ops
