// The question build_info: the macros that setup.py defines, and the catalog.
#include <optional>
#include <string>
#include <string_view>

#include "catalog.h"
#include "launch/launch.h"
#include "ops/json.h"
#include "ops/operators.h"

#ifndef TCGEMM_NVCC  // a CPU build has none
#define TCGEMM_NVCC ""
#endif

namespace tcgemm::ops {
namespace {

// "13.0.88" -> "13.0"
std::optional<std::string> cuda_version() {
  const std::string_view full = TCGEMM_NVCC;
  if (full.empty()) return std::nullopt;
  return std::string(full.substr(0, full.find('.', full.find('.') + 1)));
}

JsonArray arches() {
  JsonArray list;
  for (std::string_view rest = TCGEMM_ARCHES; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    list.add(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return list;
}

JsonArray kernels() {
  JsonArray list;
  for (std::size_t row = 0; row < kCatalog.size(); ++row)
    if (TCGEMM_CUDA && built(row)) list.add(name(kCatalog[row]));
  return list;
}

// The names of kernels that this build should have, and does not.
JsonArray missing_kernels() {
  JsonArray list;
  if constexpr (TCGEMM_CUDA)
    for (std::size_t row = 0; row < kCatalog.size(); ++row)
      if (built(row) && !launch::is_linked(row)) list.add(name(kCatalog[row]));
  return list;
}

// {"8.6": "8.0", ..}: compute capability of each GPU -> the architecture whose code it runs.
JsonObject code() {
  JsonObject object;
  for (const int capability : {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121}) {
    const Code runs = code_on(capability);
    if (!TCGEMM_CUDA || runs.capability == 0) continue;
    object.add(name(Code{capability}).text, name(runs).text);
  }
  return object;
}

}  // namespace

// Keys: version, cuda (null in a CPU build), arches, code (compute capability of a GPU -> the
// architecture whose code it runs), kernels (names of the configs in this build), missing_kernels,
// torch_target, compiler.
Results build_info(const Call&) {
  return text_result(JsonObject()
                         .add("version", TCGEMM_VERSION)
                         .add("cuda", cuda_version())
                         .add("arches", arches())
                         .add("code", code())
                         .add("kernels", kernels())
                         .add("missing_kernels", missing_kernels())
                         .add("torch_target", "2.11")
                         .add("compiler", "g++ " __VERSION__)
                         .json());
}

}  // namespace tcgemm::ops
