// The tiles that slices of k are for, and which products have kernels that divide k.
#include "plan/slices.h"

#include <algorithm>
#include <cstdint>

#include "core/code.h"
#include "core/integer.h"
#include "core/split_fp32.h"

namespace tcgemm::plan {
namespace {

struct Tile {
  int m, n;
};
constexpr Tile kTiles[] = {{64, 32},   {64, 48},   {64, 64},  {64, 128},
                           {128, 128}, {128, 192}, {128, 256}};
// The 2:4 operand, or the packed weight, is the first.
constexpr Tile kSparseTiles[] = {{128, 32}, {128, 64}};
constexpr Tile kPackedTiles[] = {{128, 32}, {128, 64}, {128, 128}};

// Fewer slices than fill the GPU: many take long to add.
constexpr int kFewerCounts[] = {16, 24, 32, 48};
// Few slices, which a cluster adds, pay off even if they do not fill the GPU.
constexpr int kClusterCounts[] = {2, 3, 4, 6, 8};
constexpr std::int64_t kTileElements = 64 * 64;
constexpr std::int64_t kPackedTileElements = 128 * 64;
constexpr std::int64_t kWidePackedTileElements = 128 * 128;  // the widest that a cluster adds

constexpr std::int64_t kBlockBytes = 128;  // of k: GemmConfig::row_bytes
constexpr std::int64_t kLeastBlocks = 4;   // k-blocks of a slice

bool has_kernels(const Problem& problem, const Device& device) {
  return holds(planned_code(device.compute_capability), Arch::sm90a) && problem.terms == 1;
}

}  // namespace

SliceCounts::SliceCounts(const Problem& problem, const Device& device) {
  static_assert(std::size(kClusterCounts) + std::size(kTiles) + std::size(kFewerCounts) <=
                kMostCounts);
  if (!has_kernels(problem, device)) return;
  most_ = std::min<std::int64_t>(
      kMostSlices, ceil_div(problem.k * bits(problem.input_a) / 8, kBlockBytes) / kLeastBlocks);
  const auto elements = std::max<std::int64_t>(1, problem.batch * problem.m * problem.n);
  const std::int64_t rows = problem.has(Slot::packed_b) ? problem.m : problem.n;
  const std::int64_t tile = !problem.has_packed_weight() ? kTileElements
                            : rows <= 64                 ? kPackedTileElements
                                                         : kWidePackedTileElements;
  for (const int count : kClusterCounts)
    if (count <= device.multiprocessors * tile / elements) add(count);
  const auto fill = [&](const auto& tiles, std::int64_t rows, std::int64_t columns) {
    for (const auto [m, n] : tiles)
      add(device.multiprocessors /
          std::max<std::int64_t>(1, problem.batch * ceil_div(rows, m) * ceil_div(columns, n)));
  };
  if (problem.has(Slot::sparse_b))
    fill(kSparseTiles, problem.n, problem.m);
  else if (problem.has(Slot::sparse_a))
    fill(kSparseTiles, problem.m, problem.n);
  else if (problem.has(Slot::packed_b))
    fill(kPackedTiles, problem.n, problem.m);
  else if (problem.has(Slot::packed_a))
    fill(kPackedTiles, problem.m, problem.n);
  else
    fill(kTiles, problem.m, problem.n);
  const bool adds_f64 = partial_sums_dtype(problem) == DType::f64;
  const int largest = size_ == 0 || adds_f64 ? 0 : *std::max_element(begin(), end());
  for (const int count : kFewerCounts)
    if (count < largest) add(count);
}

bool may_stream(const Problem& problem, const Device& device) {
  constexpr std::int64_t kMostRows = 512, kLeastColumns = 2048, kLeastDepth = 2048;
  constexpr std::int64_t kLeastPackedRows = 33;
  if (!has_kernels(problem, device) || problem.batch > 1 || problem.is_sparse()) return false;
  if (problem.has_packed_weight())
    return (problem.has(Slot::packed_b) ? problem.m : problem.n) >= kLeastPackedRows;
  const auto [rows, columns] = std::minmax(problem.m, problem.n);
  return bits(problem.input_a) == 16 && rows <= kMostRows && columns >= kLeastColumns &&
         problem.k >= kLeastDepth;
}

int invariant_slices(const Problem& problem) {
  // A long slice costs products of many rows less: they write and read the sums of each.
  constexpr std::int64_t kSliceBytes = 8192, kFewColumns = 128, kSliceBytesOfFew = 4096;
  constexpr std::int64_t kColumns = 64 * 96;  // tiles of 64 columns fill as many CTAs
  if (problem.one_slice) return 1;
  const std::int64_t bytes = problem.k * bits(problem.input_a) / 8;
  const std::int64_t longest = bytes / (problem.n <= kFewColumns ? kSliceBytesOfFew : kSliceBytes);
  return int(std::clamp<std::int64_t>(
      std::min(longest, kColumns / std::max<std::int64_t>(problem.n, 1)), 1, kMostSlices));
}

void SliceCounts::add(std::int64_t count) {
  if (count < 2 || most_ < 2) return;
  const int limited = static_cast<int>(std::min(count, most_));
  if (std::find(begin(), end(), limited) == end()) counts_[size_++] = limited;
}

}  // namespace tcgemm::plan
