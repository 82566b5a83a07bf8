// Thread block clusters: rank and size, barriers (PTX ISA 9.7.13.4 barrier.cluster), and stores to
// the shared memory of another CTA (9.7.9.11 st, 9.7.9.12 st.async).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline std::uint32_t cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// Orders mbarrier.init before any arrival from a peer CTA, if fence_mbarrier_init() runs first. The
// relaxed arrival avoids the MEMBAR.ALL.GPU of .release.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of a barrier of all threads of the cluster that have not ended. A thread sees
// after its wait what the others wrote before their arrivals, in its shared memory as well.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Stores 16 bytes at address `shared` of CTA `rank`.
__device__ inline void store_remote(std::uint32_t shared, std::uint32_t rank, const uint4& value) {
  asm volatile(
      "{\n.reg .b32 to;\n"
      "mapa.shared::cluster.u32 to, %0, %1;\n"
      "st.shared::cluster.v4.b32 [to], {%2, %3, %4, %5};\n}\n" ::"r"(shared),
      "r"(rank), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
      : "memory");
}

// The address of `shared` of CTA `rank` in the cluster.
__device__ inline std::uint32_t remote_address(std::uint32_t shared, std::uint32_t rank) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}

// Stores 4 or 8 bytes at address `shared` of CTA `rank`.
template <class T>
__device__ inline void store_remote(std::uint32_t shared, std::uint32_t rank, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const std::uint32_t to = remote_address(shared, rank);
  if constexpr (sizeof(T) == 4)
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(to),
                 "r"(__builtin_bit_cast(std::uint32_t, value))
                 : "memory");
  else
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(to),
                 "l"(__builtin_bit_cast(std::uint64_t, value))
                 : "memory");
}

// Stores 16 bytes at address `shared` of CTA `rank` and adds as many transaction bytes to `barrier`
// of that CTA. A thread that waits on that barrier sees the bytes; no fence is needed here.
__device__ inline void store_async(std::uint32_t shared, std::uint32_t barrier, std::uint32_t rank,
                                   const uint4& value) {
  asm volatile(
      "{\n.reg .b32 to, signal;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 signal, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [to], {%3, %4, %5, %6}, "
      "[signal];\n}\n" ::"r"(shared),
      "r"(barrier), "r"(rank), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
      : "memory");
}

}  // namespace tcgemm::ptx
