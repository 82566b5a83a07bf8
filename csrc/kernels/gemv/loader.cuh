// Copies one operand of a GEMV kernel to shared memory with cp.async. Each lane copies what it
// reads itself, so that no barrier stands between the copy and the read.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"

namespace tcgemm::gemv {

// A block is 128 bytes of k of kRows rows. lane = 4 * g + t copies vectors of 16 bytes:
//
//   row g, g + 8, ..     vector t of the first and of the second 64 bytes      kVectors in all
//
// A warp keeps vector i of all lanes in 512 bytes. Elements outside of the operand become zero
// without a read.
template <DType kInput, int kRows>
struct GemvLoader {
  static constexpr int kSize = bytes(kInput);
  static constexpr int kElements = 16 / kSize;  // of a vector
  static constexpr int kDepth = 8 * kElements;  // of a block
  static constexpr int kVectors = kRows / 8 * 2;
  static constexpr int kVectorBytes = 32 * 16;
  static constexpr int kBytes = kVectors * kVectorBytes;

  const char* pointer;                      // this lane's first vector of the operand
  std::int64_t step_mn, step_half, step_k;  // bytes to 8 rows further, half a block, an element
  std::int32_t left_mn, left_k;             // from `pointer` to the operand's end
  bool vectorized;

  // Rows from `first` on of matrix `batch` of `source`, seen as mn x k.
  __device__ GemvLoader(const TensorRef& source, std::int64_t stride_mn, std::int64_t stride_k,
                        bool vectors, int first, int extent_mn, int extent_k, int batch)
      : vectorized(vectors) {
    const int lane = threadIdx.x % 32, row = first + lane / 4, k = lane % 4 * kElements;
    pointer = static_cast<const char*>(source.data) +
              kSize * (batch * source.stride_batch + row * stride_mn + k * stride_k);
    step_mn = kSize * 8 * stride_mn;
    step_half = kSize * (kDepth / 2) * stride_k;
    step_k = kSize * stride_k;
    left_mn = extent_mn - row;
    left_k = extent_k - k;
  }

  // Copies block `block` to `shared`, which is this lane's place.
  __device__ void load(std::uint32_t shared, int block) const {
    const char* from = pointer + 2 * block * step_half;
    const int left = left_k - block * kDepth;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i, from += step_mn, shared += 2 * kVectorBytes) {
      const bool exists = left_mn > 8 * i;
      copy(shared, from, exists ? left : 0);
      copy(shared + kVectorBytes, from + step_half, exists ? left - kDepth / 2 : 0);
    }
  }

 private:
  // Copies a vector of which `left` elements exist; there may be none, or more than a vector has.
  __device__ void copy(std::uint32_t shared, const char* from, int left) const {
    if constexpr (kSize >= 4) {
      if (!vectorized) {
#pragma unroll
        for (int i = 0; i < kElements; ++i)
          ptx::cp_async_element<kSize>(shared + i * kSize, from + i * step_k, i < left);
        return;
      }
    }
    ptx::cp_async(shared, from, kSize * min(max(left, 0), kElements));
  }
};

}  // namespace tcgemm::gemv
