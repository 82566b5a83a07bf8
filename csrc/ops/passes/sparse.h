// The operators of 2:4 sparsity: compress24, decompress24, gather24, prune24 and tile24. Each
// checks its arguments, allocates the results, and calls a backend.
#pragma once

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstdint>

#include "core/sparse.h"
#include "ops/arguments.h"
#include "ops/target.h"

namespace tcgemm::ops {

constexpr const char* name(SparseOp op) {
  constexpr const char* names[kSparseOps] = {"tcgemm.compress24", "tcgemm.decompress24",
                                             "tcgemm.gather24", "tcgemm.prune24", "tcgemm.tile24"};
  return names[static_cast<int>(op)];
}

// One function an operator; each computes on the device of `like`.
struct SparseBackend {
  void (*compress)(const Compression& compression, const View& like);
  void (*decompress)(const Decompression& decompression, const View& like);
  void (*gather)(const Gathering& gathering, const View& like);
  void (*prune)(const Pruning& pruning, const View& like);
  void (*tile)(const MetadataTiling& tiling, const View& like);
};

// As many tensors as the schema returns; the others are null.
using SparseResults = std::array<TensorHandle, 3>;

// Target::none throws before it calls `backend`, whose members may then be null.
SparseResults sparse(SparseOp op, const SparseArguments& arguments, Target target,
                     const SparseBackend& backend);

template <SparseOp op, Target target, const SparseBackend& backend>
void sparse_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  constexpr int count = op == SparseOp::compress ? 3 : 1;
  SparseResults results = sparse(op, unbox_sparse(op, stack), target, backend);
  for (int i = 0; i < count; ++i) stack[i] = reinterpret_cast<std::uint64_t>(results[i].release());
}

template <Target target, const SparseBackend& backend>
void register_sparse(torch::stable::detail::StableLibrary& library) {
  library.impl("compress24", sparse_kernel<SparseOp::compress, target, backend>);
  library.impl("decompress24", sparse_kernel<SparseOp::decompress, target, backend>);
  library.impl("gather24", sparse_kernel<SparseOp::gather, target, backend>);
  library.impl("prune24", sparse_kernel<SparseOp::prune, target, backend>);
  library.impl("tile24", sparse_kernel<SparseOp::tile, target, backend>);
}

}  // namespace tcgemm::ops
