// Writes the macros that setup.py defines, and the catalog, as one line of JSON.
#include "ops/build_info.h"

#include <string_view>

#include "catalog.h"
#include "ops/error.h"

#ifndef TCGEMM_NVCC  // a CPU build has none
#define TCGEMM_NVCC ""
#endif

namespace tcgemm::ops {
namespace {

class JsonStrings {
 public:
  void add(std::string_view text) {
    items_ += items_.empty() ? "\"" : ", \"";
    items_ += text;
    items_ += '"';
  }
  std::string json() const { return "[" + items_ + "]"; }

 private:
  std::string items_;
};

// "13.0.88" -> "13.0"
std::string cuda_version() {
  const std::string_view full = TCGEMM_NVCC;
  if (full.empty()) return "null";
  return '"' + std::string(full.substr(0, full.find('.', full.find('.') + 1))) + '"';
}

std::string arches() {
  JsonStrings list;
  for (std::string_view rest = TCGEMM_ARCHES; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    list.add(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return list.json();
}

std::string kernels() {
  JsonStrings list;
  for (const GemmConfig& config : kCatalog)
    if (TCGEMM_CUDA && built(config)) list.add(name(config));
  return list.json();
}

// What each kernel of this build multiplies, by its row of the catalog.
std::string configs() {
  std::string items;
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    const GemmConfig& config = kCatalog[row];
    if (!TCGEMM_CUDA || !built(config)) continue;
    items += join(items.empty() ? "" : ", ", "{\"index\": ", std::int64_t(row), ", \"arch\": \"",
                  name(config.arch), "\", \"input\": \"", name(config.input), "\", \"input_b\": \"",
                  name(config.input_b), "\", \"accumulator\": \"", name(config.accumulator),
                  "\", \"terms\": ", std::int64_t(config.terms),
                  ", \"sparse\": ", config.sparse ? "true" : "false", "}");
  }
  return "[" + items + "]";
}

// {"8.6": "8.0", ..}: compute capability of each GPU -> the architecture whose code it runs.
std::string code() {
  std::string items;
  for (const int capability : {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121}) {
    const Code runs = code_on(capability);
    if (!TCGEMM_CUDA || runs.capability == 0) continue;
    items += std::string(items.empty() ? "" : ", ") + '"' + name(Code{capability}).text + "\": \"" +
             name(runs).text + '"';
  }
  return "{" + items + "}";
}

}  // namespace

std::string build_info() {
  return "{\"version\": \"" TCGEMM_VERSION "\", \"cuda\": " + cuda_version() +
         ", \"arches\": " + arches() + ", \"code\": " + code() + ", \"kernels\": " + kernels() +
         ", \"configs\": " + configs() +
         ", \"torch_target\": \"2.11\", \"compiler\": \"g++ " __VERSION__ "\"}";
}

}  // namespace tcgemm::ops
