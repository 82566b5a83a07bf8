// Writes texts and numbers, and copies the answer into a tensor.
#include "ops/json.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ops/tensor.h"

namespace tcgemm::ops {

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      json += escape;
    } else {
      json += c;
    }
  }
  return json + '"';
}

std::string json_number(double number) {
  if (!std::isfinite(number)) return "null";
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

Results text_result(std::string_view text) {
  const std::int64_t size = static_cast<std::int64_t>(text.size());
  View cpu;
  cpu.device_type = aoti_torch_device_type_cpu();
  TensorHandle tensor = allocate("a text", {&size, 1}, scalar_type_of(DType::u8), cpu);
  std::memcpy(data(tensor), text.data(), text.size());
  return {std::move(tensor)};
}

}  // namespace tcgemm::ops
