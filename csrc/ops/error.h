// Every error of csrc/ops is a sentence that fail() joins and throws.
//
// std::runtime_error reaches Python as RuntimeError with the text unchanged, as torch.mm's errors
// do. STD_TORCH_CHECK would put a file and a line in front. A correct call runs none of this.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tcgemm::ops {

// A shape as Python prints it: (), (3,), (2, 3).
struct Shape {
  const std::int64_t* sizes;
  std::int64_t dims;
};

inline void append(std::string& text, std::string_view piece) { text += piece; }
template <std::integral Integer>
void append(std::string& text, Integer number) {
  text += std::to_string(number);
}
// The shortest text that reads back as the number.
inline void append(std::string& text, double number) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}
inline void append(std::string& text, Shape shape) {
  text += '(';
  for (std::int64_t d = 0; d < shape.dims; ++d) {
    if (d) text += ", ";
    text += std::to_string(shape.sizes[d]);
  }
  text += shape.dims == 1 ? ",)" : ")";
}

template <class... Pieces>
[[gnu::noinline]] std::string join(const Pieces&... pieces) {
  std::string text;
  (append(text, pieces), ...);
  return text;
}

template <class... Pieces>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Pieces&... pieces) {
  throw std::runtime_error(join(pieces...));
}

}  // namespace tcgemm::ops
