// Errors are sentences: every refusal of csrc/ops goes through fail(), which joins its parts.
//
// std::runtime_error reaches Python as RuntimeError with the text unchanged, as torch.mm's errors
// do (STD_TORCH_CHECK would put a file and a line in front). Nothing here runs in a correct call.
#pragma once

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

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, std::int64_t number) { text += std::to_string(number); }
inline void append(std::string& text, Shape shape) {
  text += '(';
  for (std::int64_t d = 0; d < shape.dims; ++d) {
    if (d) text += ", ";
    text += std::to_string(shape.sizes[d]);
  }
  text += shape.dims == 1 ? ",)" : ")";
}

template <class... Parts>
[[gnu::noinline]] std::string join(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw std::runtime_error(join(parts...));
}

}  // namespace tcgemm::ops
