// A ring of tiles in shared memory: the warp that finds the tiles of a grouped product writes them,
// and the producer thread and the consumer warps read them.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::sm90 {

// A tile of a CTA: its first row and column, and the rows, or the k, of its group.
struct RingTile {
  std::int32_t group = -1;  // -1: there are no more tiles
  std::int32_t row = 0, col = 0, begin = 0, end = 0;
};

// The ring. One warp writes, and the producer thread and each consumer warp read every tile.
//
//   slots of 32 bytes | full[kSlots] | empty[kSlots]
template <GemmConfig kConfig>
class TileRing {
 public:
  static constexpr int kSlots = GemmConfig::kRingSlots;
  static constexpr int kReaders = 1 + 4 * kConfig.warpgroups;

  __device__ explicit TileRing(const SharedStorage<kConfig>& shared) : base_(shared.tile_ring()) {}

  __device__ void initialise() const {
    for (int slot = 0; slot < kSlots; ++slot) {
      ptx::mbarrier_init(full(slot), 1);
      ptx::mbarrier_init(empty(slot), kReaders);
    }
  }

  // One thread calls it.
  __device__ void write(const RingTile& tile) {
    ptx::mbarrier_wait(empty(slot_), parity_ ^ 1);
    ptx::store_shared_vector(address(), uint4(tile.group, tile.row, tile.col, tile.begin));
    ptx::store_shared_b32(address() + 16, tile.end);
    ptx::mbarrier_arrive(full(slot_));
    advance();
  }

  // Of the producer thread.
  __device__ RingTile read() {
    const RingTile tile = load();
    ptx::mbarrier_arrive(empty(slot_));
    advance();
    return tile;
  }

  // Of a consumer warp.
  __device__ RingTile read_as_warp() {
    const RingTile tile = load();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty(slot_));
    advance();
    return tile;
  }

 private:
  __device__ std::uint32_t address() const { return base_ + 32 * slot_; }
  __device__ std::uint32_t full(int slot) const { return base_ + 32 * kSlots + 8 * slot; }
  __device__ std::uint32_t empty(int slot) const { return full(kSlots + slot); }

  __device__ RingTile load() const {
    ptx::mbarrier_wait(full(slot_), parity_);
    const uint4 x = ptx::load_shared_vector(address());
    return {int(x.x), int(x.y), int(x.z), int(x.w), int(ptx::load_shared_b32(address() + 16))};
  }
  __device__ void advance() {
    if (++slot_ == kSlots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  std::uint32_t base_;
  int slot_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace tcgemm::sm90
