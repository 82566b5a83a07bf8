// cp.async: 16 bytes from global to shared memory without passing registers, past L1 (PTX ISA
// 9.7.9.25.3). A thread's copies are collected in groups, which end in the order of their commits.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// `bytes` of the 16 are read, the rest becomes zero; 0 reads nothing, so any address will do.
__device__ inline void cp_async(std::uint32_t shared, const char* global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// All 16 bytes if x > x_bound and y > y_bound, else zeros. For unrolled loops: the comparisons
// stand in the asm so that the compiler keeps two counters in registers and not a predicate for
// every copy.
__device__ inline void cp_async_if(std::uint32_t shared, const char* global, int x, int x_bound,
                                   int y, int y_bound) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 bytes;\n"
      "setp.gt.s32 p, %2, %3;\n"
      "setp.gt.and.s32 p, %4, %5, p;\n"
      "selp.b32 bytes, 16, 0, p;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, bytes;\n}\n" ::"r"(shared),
      "l"(global), "r"(x), "r"(x_bound), "r"(y), "r"(y_bound)
      : "memory");
}

// One element of 4 or 8 bytes, or zero without a read. Through L1: only that path takes fewer than
// 16 bytes.
template <int kSize>
__device__ inline void cp_async_element(std::uint32_t shared, const char* global, bool exists) {
  static_assert(kSize == 4 || kSize == 8);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
               "n"(kSize), "r"(exists ? kSize : 0)
               : "memory");
}

// One 32-bit word.
__device__ inline void cp_async_word(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

// Hides where a pointer came from: the compiler then steps it from copy to copy, where it would
// otherwise compute, and keep, an address for each.
__device__ inline void hide_origin(const char*& pointer) { asm volatile("" : "+l"(pointer)); }

__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most kGroups of this thread's groups are in flight; a barrier then shows them to the
// others.
template <int kGroups>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Arrives on an mbarrier once this thread's copies so far have landed: one of the arrivals that the
// barrier was initialised with.
__device__ inline void cp_async_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace tcgemm::ptx
