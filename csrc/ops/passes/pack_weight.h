// The operator _pack_weight. It checks its arguments, allocates the results, and calls a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <string>

#include "core/pack_weight.h"
#include "ops/target.h"

namespace tcgemm::ops {

struct PackWeightArguments {
  TensorHandle w, book, global_scale;
  std::string format;
  std::int64_t group_size = 0;
  double limit = 0;
  std::string scale_type;
  bool zero_points = false;
  bool least_error = false;
};

PackWeightArguments unbox_pack_weight(std::uint64_t* stack);

struct PackWeightResults {
  TensorHandle codes, scales, zero_points;
};

// Computes on the device of `w`.
using PackWeightBackend = void (*)(const Packing& packing, const View& w);

// Target::none throws before it calls `backend`, which may then be null.
PackWeightResults pack_weight(const PackWeightArguments& arguments, Target target,
                              PackWeightBackend backend);

template <Target target, PackWeightBackend backend>
void pack_weight_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  PackWeightResults results = pack_weight(unbox_pack_weight(stack), target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(results.codes.release());
  stack[1] = reinterpret_cast<std::uint64_t>(results.scales.release());
  stack[2] = reinterpret_cast<std::uint64_t>(results.zero_points.release());
}

template <Target target, PackWeightBackend backend>
void register_pack_weight(torch::stable::detail::StableLibrary& library) {
  library.impl("_pack_weight", pack_weight_kernel<target, backend>);
}

}  // namespace tcgemm::ops
