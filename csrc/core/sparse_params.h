// Parameter structs of the kernels in kernels/passes/sparse. core/sparse.h says what the kernels
// compute.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/sparse.h"

namespace tcgemm {

struct CompressParams {
  CopyParams w;  // copies to the values, which are contiguous
  std::uint8_t* metadata;
  std::int64_t metadata_pitch;
  std::int64_t* excess;  // Compression::excess; without `prune` it starts as {-1, -1}
  bool vector;           // stores of 8 bytes of values and of 2 bytes of metadata are aligned
};

struct PruneParams {
  CopyParams w;  // copies to the pruned matrix, which is contiguous
  bool vector;   // stores of 16 bytes are aligned
};

struct DecompressParams {
  TensorRef values;
  TensorRef metadata;
  void* w;
  std::int64_t rows, k;
  bool vector;  // loads of 8 bytes of values and stores of 16 bytes of w are aligned
};

struct GatherParams {
  CopyParams w;  // copies to the values, which are contiguous
  TensorRef metadata;
  bool vector;  // stores of 8 bytes of values are aligned
};

struct MetadataTileParams {
  TensorRef metadata;
  std::uint32_t* tiles;
  MetadataTiles shape;
};

}  // namespace tcgemm
