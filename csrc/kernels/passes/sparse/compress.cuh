// Compresses w to values and metadata, as core/sparse.h defines them.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/passes/sparse/four_rows.cuh"
#include "kernels/passes/sparse/group.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// A thread processes one 16-byte vector of each of four rows. Sixteen threads read adjacent vectors
// of a row. For each vector a thread writes
//
//   values     8 bytes
//   metadata   2, 1 or 1/2 byte for elements of 8, 16 or 32 bits; two lanes combine their halves
//
// Full tiles store unpredicated; edge tiles predicate each element.

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Computes the values and the metadata of one vector.
template <DType kType, Pattern kPattern>
struct Compressed {
  using G = Groups<kType, kPattern>;
  static constexpr int kSize = G::kSize;
  static constexpr int kValues = G::kElements / 2;
  static constexpr int kBits = G::kCount * G::kCodeBits;  // of metadata

  std::uint32_t values[2];
  std::uint32_t metadata;

  __device__ Compressed(const G& groups, const std::uint32_t (&kept)[4]) {
    const std::uint32_t (&x)[4] = groups.x;
    std::uint32_t mask[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) mask[i] = ptx::fill_sign<kSize>(kept[i]);
    if constexpr (G::kPairs) {
      values[0] = select(mask[0], x[0], x[1]);
      values[1] = select(mask[2], x[2], x[3]);
      metadata = (mask[1] & 1) | (mask[3] & 4);
    } else {
      const std::uint32_t first = select(mask[0], x[0], select(mask[1], x[1], x[2]));
      const std::uint32_t second = select(mask[3], x[3], select(mask[2], x[2], x[1]));
      // Bit 0 of each group's code. Two groups share a byte: codes of odd groups start at bit 4.
      constexpr std::uint32_t kBit = kSize == 1 ? 0x10011001u : kSize == 2 ? 0x00100001u : 1u;
      const std::uint32_t codes = (~mask[0] & mask[1] & kBit) | (~mask[0] & ~mask[1] & kBit * 2) |
                                  ((~mask[2] | mask[3]) & kBit * 4) |
                                  ((mask[2] | mask[3]) & kBit * 8);
      if constexpr (kSize == 1) {
        values[0] = __byte_perm(first, second, 0x5140);
        values[1] = __byte_perm(first, second, 0x7362);
        metadata = __byte_perm(codes | codes >> 8, 0, 0x4420);
      } else if constexpr (kSize == 2) {
        values[0] = __byte_perm(first, second, 0x5410);
        values[1] = __byte_perm(first, second, 0x7632);
        metadata = (codes | codes >> 16) & 0xff;
      } else {
        static_assert(kSize == 4);
        values[0] = first, values[1] = second;
        metadata = codes;
      }
    }
  }

  // Clears the metadata of the groups from `present` on, which do not exist.
  __device__ void clear_from(int present) { metadata &= (1u << present * G::kCodeBits) - 1; }

 private:
  __device__ static std::uint32_t select(std::uint32_t mask, std::uint32_t x, std::uint32_t y) {
    return (mask & x) | (~mask & y);
  }
};

// Counts the groups that this thread found with too many nonzero elements.
class Excess {
 public:
  // Adds a bit mask of groups; `index`: of the first element of the first group.
  __device__ void add(unsigned groups, std::int64_t index, int group) {
    if (groups == 0) return;
    count_ += __popc(groups);
    first_ = min(first_, static_cast<unsigned long long>(index + (__ffs(groups) - 1) * group));
  }

  // Both results start at -1. One CTA adds 1 to the count, and for the minimum -1 is the largest
  // unsigned number.
  __device__ void report(std::int64_t* excess) const {
    auto* to = reinterpret_cast<unsigned long long*>(excess);
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(to, 1);
    if (!__any_sync(kAllLanes, count_ != 0)) return;
    unsigned long long count = count_, first = first_;
    for (int distance = 16; distance > 0; distance /= 2) {
      count += __shfl_xor_sync(kAllLanes, count, distance);
      first = min(first, __shfl_xor_sync(kAllLanes, first, distance));
    }
    if (threadIdx.x % 32 != 0) return;
    atomicAdd(to, count);
    atomicMin(to + 1, first);
  }

 private:
  unsigned long long count_ = 0, first_ = ~0ull;
};

// Stores four compressed vectors of a thread.
template <DType kType, Pattern kPattern>
class CompressedWriter {
 public:
  using C = Compressed<kType, kPattern>;
  static constexpr int kSize = C::kSize;

  __device__ CompressedWriter(const CompressParams& params, std::int64_t row, std::int64_t vector)
      : values_(static_cast<char*>(params.w.copy) +
                (row * params.w.pitch + vector * C::kValues) * kSize),
        pitch_(params.w.pitch * kSize),
        metadata_(params.metadata + row * params.metadata_pitch + vector * C::kBits / 8),
        metadata_pitch_(params.metadata_pitch) {}

  // Stores a full vector of row i with vector stores.
  __device__ void store(int i, const C& vector) const {
    *reinterpret_cast<uint2*>(values_ + i * pitch_) = {vector.values[0], vector.values[1]};
    std::uint8_t* to = metadata_ + i * metadata_pitch_;
    const std::uint32_t bits = bytes_of(vector.metadata);
    if constexpr (C::kBits == 16)
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bits);
    else if (C::kBits == 8 || threadIdx.x % 2 == 0)
      *to = static_cast<std::uint8_t>(bits);
  }

  // Stores a vector that has `present` groups, perhaps none.
  __device__ void store(int i, C vector, int present) const {
    vector.clear_from(present);
    store_elements<kSize>(values_ + i * pitch_, vector.values, present * kept(kPattern));
    std::uint8_t* to = metadata_ + i * metadata_pitch_;
    const std::uint32_t bits = bytes_of(vector.metadata);
    if (present == 0 || (C::kBits == 4 && threadIdx.x % 2 == 1)) return;
    *to = static_cast<std::uint8_t>(bits);
    if (present * C::G::kCodeBits > 8) to[1] = static_cast<std::uint8_t>(bits >> 8);
  }

 private:
  // All lanes call this. With 4 bits a vector, even lanes also get the bits of the next lane.
  __device__ static std::uint32_t bytes_of(std::uint32_t metadata) {
    if constexpr (C::kBits != 4) return metadata;
    return metadata | __shfl_down_sync(kAllLanes, metadata, 1) << 4;
  }

  char* values_;
  std::int64_t pitch_;
  std::uint8_t* metadata_;
  std::int64_t metadata_pitch_;
};

// Four CTAs per SM: 64 registers per thread hold all loads in flight.
template <DType kType, Pattern kPattern, bool kPrune>
__global__ void __launch_bounds__(kSparseThreads, 4)
    compress(const __grid_constant__ CompressParams params) {
  using C = Compressed<kType, kPattern>;
  using G = typename C::G;
  __shared__ SharedBuffer<C::kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  Excess excess;
  for_each_four_rows<C::kSize>(
      params.w, shared, [&](const auto& tile, VectorCoord coord, auto& vectors) {
        const std::int64_t row = tile.row + coord.row;
        const CompressedWriter<kType, kPattern> writer(params, row,
                                                       tile.column / G::kElements + coord.column);
        const int k_left = tile.k - coord.column * G::kElements;
        const auto compressed = [&](int i, const uint4& vector) -> C {
          const G groups(vector);
          std::uint32_t kept[4];
          if constexpr (kPrune)
            groups.keep_largest(kept);
          else
            excess.add(groups.keep_not_zero(kept),
                       (row + i) * params.w.k + tile.column + coord.column * G::kElements,
                       group(kPattern));
          return C(groups, kept);
        };
        if (params.vector && tile.full()) {
#pragma unroll
          for (int i = 0; i < kRowsPerThread; ++i) writer.store(i, compressed(i, vectors[i]));
          return;
        }
        constexpr int kGroup = group(kPattern);
        const int groups = max(0, min(G::kCount, (k_left + kGroup - 1) / kGroup));
#pragma unroll 1
        for (int i = 0; i < kRowsPerThread; ++i) {
          writer.store(i, compressed(i, vectors[0]), coord.row + i < tile.rows ? groups : 0);
#pragma unroll
          for (int j = 1; j < kRowsPerThread; ++j) vectors[j - 1] = vectors[j];
        }
      });
  if constexpr (!kPrune)
    excess.report(params.excess);
  else if (blockIdx.x == 0 && threadIdx.x < 2)
    params.excess[threadIdx.x] = -static_cast<std::int64_t>(threadIdx.x);
}

}  // namespace tcgemm::sparse
