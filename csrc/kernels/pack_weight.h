// The interface of the kernel that packs a weight to launch/.
#pragma once

#include "core/pack_weight.h"
#include "core/params.h"

namespace tcgemm::kernels {

struct PackWeightParams {
  TensorRef w;  // (n, k)
  std::int64_t n, k, group;
  std::int64_t groups_in_row;
  std::int64_t row_bytes;  // of codes
  int lanes;               // pack_lanes
  bool vector_codes;       // the codes of a lane are stored at once
  PackRules rules;
  const float* book;
  const float* global_scale;
  std::uint8_t* codes;
  void* scales;
  std::uint8_t* zero_points;
};

const void* pack_weight(const PackWeightParams& params);

inline constexpr int kPackWeightThreads = 256;

int pack_weight_blocks(const PackWeightParams& params);

}  // namespace tcgemm::kernels
