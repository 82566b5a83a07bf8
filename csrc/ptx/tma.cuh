// Bulk tensor copies (TMA): boxes of a rank-3 tensor map {inner, outer, batch}, as a rule, to and
// from shared memory (PTX ISA 9.7.9.25.5). One thread issues for the whole block.
#pragma once

#include <cstdint>

#include "core/params.h"

namespace tcgemm::ptx {

__device__ inline void tma_prefetch(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void tma_load(std::uint32_t shared, const TensorMap* map, std::uint32_t barrier,
                                int inner, int outer, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(batch)
      : "memory");
}

// A box of a rank-4 map {inner, 8, 2, outer}, from line `outer` * 16 on: all of 16 lines in the
// order 0, 2, 4 .. 1, 3, 5 ..
__device__ inline void tma_load_interleaved(std::uint32_t shared, const TensorMap* map,
                                            std::uint32_t barrier, int inner, int outer) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, 0, 0, %4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer)
      : "memory");
}

// Neighbouring bytes, a multiple of 16 from such an address on.
__device__ inline void bulk_load(std::uint32_t shared, const void* global, std::uint32_t barrier,
                                 int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::
          "r"(shared),
      "l"(global), "r"(barrier), "r"(bytes)
      : "memory");
}

// The same box lands at the same offset, and signals the same barrier, in every block of `mask`.
__device__ inline void tma_load_multicast(std::uint32_t shared, const TensorMap* map,
                                          std::uint32_t barrier, int inner, int outer, int batch,
                                          std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(batch), "h"(mask)
      : "memory");
}

// What lies outside the tensor is dropped.
__device__ inline void tma_store(const TensorMap* map, std::uint32_t shared, int inner, int outer,
                                 int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(shared), "r"(inner), "r"(outer), "r"(batch)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until shared memory that this thread's stores read, but for the last kPending of them, may be
// written again.
template <int kPending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace tcgemm::ptx
