// Thread block clusters: rank and size, barriers (PTX ISA 9.7.13.4 barrier.cluster), and stores to
// the shared memory of another CTA (9.7.9.11 st, 9.7.9.12 st.async).
#pragma once

#include <cstdint>
#include <type_traits>

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

// The CTAs of the cluster along x and y. The rank of CTA (x, y) is x + y * size of x.
__device__ inline uint2 cluster_shape() {
  uint2 shape;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(shape.x));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(shape.y));
  return shape;
}

// The index of the cluster in the grid, along x. No grid has several along y.
__device__ inline std::uint32_t cluster_index() {
  std::uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

// The two halves of a barrier of all threads of the cluster that have not ended. A thread sees
// after its wait what the others wrote before their arrivals, in its shared memory as well.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// An arrival that orders mbarrier.init before any arrival from a peer CTA, if fence_mbarrier_init()
// runs first. It avoids the MEMBAR.ALL.GPU of .release.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_sync() {
  cluster_arrive_relaxed();
  cluster_wait();
}

// The address of `shared` of CTA `rank` in the cluster.
__device__ inline std::uint32_t remote_address(std::uint32_t shared, std::uint32_t rank) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}

// Stores 4, 8 or 16 bytes at an address that remote_address has returned.
template <class T>
__device__ inline void store_remote(std::uint32_t remote, const T& value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || std::is_same_v<T, uint4>);
  if constexpr (sizeof(T) == 4)
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(remote),
                 "r"(__builtin_bit_cast(std::uint32_t, value))
                 : "memory");
  else if constexpr (sizeof(T) == 8)
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(remote),
                 "l"(__builtin_bit_cast(std::uint64_t, value))
                 : "memory");
  else
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

// Stores 16 bytes and adds as many transaction bytes to `barrier` of the same CTA. Both addresses
// are remote ones. A thread that waits on that barrier sees the bytes; no fence is needed here.
__device__ inline void store_async(std::uint32_t remote, std::uint32_t barrier,
                                   const uint4& value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(remote),
      "r"(barrier), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
      : "memory");
}

}  // namespace tcgemm::ptx
