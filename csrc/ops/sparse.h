// compress24, decompress24, gather24, prune24 and tile24: check, allocate, hand to a backend, as
// dense.h does for products.
#pragma once

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstdint>

#include "core/sparse.h"
#include "ops/arguments.h"

namespace tcgemm::ops {

constexpr const char* name(SparseOp op) {
  constexpr const char* names[kSparseOps] = {"tcgemm.compress24", "tcgemm.decompress24",
                                             "tcgemm.gather24", "tcgemm.prune24", "tcgemm.tile24"};
  return names[static_cast<int>(op)];
}

// What computes each; `like` is on the device that does.
struct RunSparse {
  void (*compress)(const Compression& compression, const View& like);
  void (*decompress)(const Decompression& decompression, const View& like);
  void (*gather)(const Gathering& gathering, const View& like);
  void (*prune)(const Pruning& pruning, const View& like);
  void (*tile)(const MetadataTiling& tiling, const View& like);
};

// As many as the schema returns; the others are null.
using SparseResults = std::array<TensorHandle, 3>;

SparseResults sparse(SparseOp op, const SparseArguments& arguments, const RunSparse& run);

// What a backend does for one call.
using Sparse = SparseResults (*)(SparseOp op, const SparseArguments& arguments);

template <SparseOp op, Sparse function>
void sparse_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  constexpr int results = op == SparseOp::compress ? 3 : 1;
  SparseResults result = function(op, unbox_sparse(op, stack));
  for (int i = 0; i < results; ++i) stack[i] = reinterpret_cast<std::uint64_t>(result[i].release());
}

template <Sparse function>
void register_sparse(torch::stable::detail::StableLibrary& library) {
  library.impl("compress24", sparse_kernel<SparseOp::compress, function>);
  library.impl("decompress24", sparse_kernel<SparseOp::decompress, function>);
  library.impl("gather24", sparse_kernel<SparseOp::gather, function>);
  library.impl("prune24", sparse_kernel<SparseOp::prune, function>);
  library.impl("tile24", sparse_kernel<SparseOp::tile, function>);
}

}  // namespace tcgemm::ops
