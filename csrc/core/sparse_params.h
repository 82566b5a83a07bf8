// What the kernels of kernels/sparse get: see core/sparse.h for what they compute.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/sparse.h"

namespace tcgemm {

struct CompressParams {
  CopyParams w;  // what is copied are the values; their pitch is that of the contiguous
  std::uint8_t* metadata;
  std::int64_t metadata_pitch;
  std::int64_t* excess;  // without pruning it starts at -1, -1
  bool vector;           // values may be written 8 bytes, metadata 2 bytes at a time
};

struct PruneParams {
  CopyParams w;  // to a contiguous copy
  bool vector;   // which may be written 16 bytes at a time
};

struct DecompressParams {
  TensorRef values;
  TensorRef metadata;
  void* w;
  std::int64_t rows, k;
  bool vector;  // values may be read 8 bytes, w written 16 bytes at a time
};

struct GatherParams {
  CopyParams w;  // what is copied are the values
  TensorRef metadata;
  bool vector;  // values may be written 8 bytes at a time
};

struct MetadataTileParams {
  TensorRef metadata;
  std::uint32_t* tiles;
  MetadataTiles shape;
};

}  // namespace tcgemm
