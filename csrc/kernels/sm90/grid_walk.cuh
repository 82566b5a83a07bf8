// The walk of kernels that divide k among the CTAs of a grid, and where the sums of their slices
// lie in memory.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "tile/scheduler.cuh"

namespace tcgemm::sm90 {

// The tiles of a cluster. kDivides: cluster i has slice i % count of tile i / count. Else it has
// whole tiles. With stream-K it has the end of a tile and the beginning of the next one first:
//
//   k-blocks   | tile 0            | tile 1            | tile 2            |
//   clusters   | 0           | 1           | 2           | 3           | 4 ..
//   places     | 0           | 1   | 2     | 3         |4| 5           | 6 ..
//
// The slices of a tile have adjacent places in memory, in the order of k: cluster i has the place
// i + t for its slice of tile t. A place has the sums of all CTAs of a cluster.
template <bool kDivides>
class GridWalk {
 public:
  __device__ GridWalk(const TmaParams& params, std::uint32_t cluster)
      : slices_(params.slices),
        cluster_(cluster),
        place_(cluster),
        slices_left_(0),
        k_block_(0),
        k_blocks_(tile_blocks()),
        walk_(params.tiling, first_tile()) {}

  // Kernels that add slices only in memory have no whole tiles.
  __device__ bool done() const { return slices_left_ == 0 && (kDivides || walk_.done()); }
  __device__ void advance() {
    if (slices_left_ == 0) return walk_.advance();
    const bool has_next = --slices_left_ > 0;
    ++place_;
    k_block_ = 0;
    k_blocks_ = has_next ? slices_.size(cluster_) - k_blocks_ : tile_blocks();
    walk_.seek(has_next ? place_ - cluster_ : slices_.stream_tiles + cluster_);
  }

  __device__ tile::TileCoord tile() const { return walk_.tile(); }
  __device__ int k_block() const { return k_block_; }
  __device__ int k_blocks() const { return k_blocks_; }
  __device__ int place() const { return place_; }
  // Of this tile and the next ones, those of which the cluster has a slice.
  __device__ int slices_left() const { return slices_left_; }

 private:
  __device__ int tile_blocks() const { return slices_.tile_blocks.value; }
  __device__ std::uint32_t first_tile() {
    if (slices_.stream_k) {
      const int first = slices_.first(cluster_), size = slices_.size(cluster_);
      const std::uint32_t tile = slices_.tile_blocks.quotient(first);
      k_block_ = first - tile * tile_blocks();
      k_blocks_ = min(size, tile_blocks() - k_block_);
      slices_left_ = size > k_blocks_ ? 2 : 1;
      place_ += tile;
      return tile;
    }
    if (!kDivides) return cluster_;
    const std::uint32_t tile = slices_.divisor.quotient(cluster_);
    const int slice = cluster_ - tile * slices_.count;
    slices_left_ = 1;
    k_block_ = slices_.first(slice);
    k_blocks_ = slices_.size(slice);
    return tile;
  }

  const Slices& slices_;
  const std::uint32_t cluster_;
  int place_, slices_left_, k_block_, k_blocks_;
  tile::TileWalk walk_;
};

// The slices of a tile.
struct SlicesOfTile {
  int place;  // of the first one
  int count;

  __device__ SlicesOfTile(const Slices& slices, int tile) {
    if (!slices.stream_k) {
      place = tile * slices.count;
      count = slices.count;
      return;
    }
    const int begin = tile * slices.tile_blocks.value;
    const int first = slices.part_of(begin);
    place = first + tile;
    count = slices.part_of(begin + slices.tile_blocks.value - 1) - first + 1;
  }
};

}  // namespace tcgemm::sm90
