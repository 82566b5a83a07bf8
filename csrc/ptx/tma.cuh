// Bulk tensor copies (TMA) between global and shared memory (PTX ISA 9.7.9.25.5). One thread issues
// a box for the whole CTA. Unless stated otherwise, a tensor map has rank 3: {inner, outer, batch}.
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

// Loads a box of a rank-4 map {inner, 8, 2, outer}: the 16 rows from row `outer` * 16 on, in the
// order 0, 2, 4, .., 14, 1, 3, .., 15.
__device__ inline void tma_load_interleaved(std::uint32_t shared, const TensorMap* map,
                                            std::uint32_t barrier, int inner, int outer) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, 0, 0, %4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer)
      : "memory");
}

// Copies contiguous bytes. The addresses and the number of bytes are multiples of 16.
__device__ inline void bulk_load(std::uint32_t shared, const void* global, std::uint32_t barrier,
                                 int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::
          "r"(shared),
      "l"(global), "r"(barrier), "r"(bytes)
      : "memory");
}

// Copies contiguous bytes of this CTA's shared memory to another CTA of the cluster. `to` and
// `barrier` are remote addresses of the same CTA.
__device__ inline void bulk_send(std::uint32_t to, std::uint32_t shared, std::uint32_t barrier,
                                 int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %3, "
      "[%2];" ::"r"(to),
      "r"(shared), "r"(barrier), "r"(bytes)
      : "memory");
}

// Loads one box into every CTA of `mask`, at the same offset of shared memory. The barrier at the
// same offset in each of these CTAs receives the transaction bytes.
__device__ inline void tma_load_multicast(std::uint32_t shared, const TensorMap* map,
                                          std::uint32_t barrier, int inner, int outer, int batch,
                                          std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(batch), "h"(mask)
      : "memory");
}

// TMA does not write elements of the box that are outside the tensor.
__device__ inline void tma_store(const TensorMap* map, std::uint32_t shared, int inner, int outer,
                                 int batch, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%2, %3, %4}], [%1], %5;" ::"l"(map),
      "r"(shared), "r"(inner), "r"(outer), "r"(batch), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's stores still read shared memory. The memory of the
// others may then be overwritten.
template <int kPending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace tcgemm::ptx
