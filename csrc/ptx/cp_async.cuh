// cp.async copies from global to shared memory without registers; copies of 16 bytes bypass L1 (PTX
// ISA 9.7.9.25.3). A thread commits its copies in groups, which complete in the order of commits.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// Copies `bytes` bytes and fills the rest of the 16 with zeros. With 0 bytes the address is not
// read and need not be valid.
__device__ inline void cp_async(std::uint32_t shared, const char* global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// Copies 16 bytes. The other forms take several instructions more to apply their condition.
__device__ inline void cp_async(std::uint32_t shared, const char* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}

// Copies 16 bytes if x > bound, and else leaves shared memory as it is. A branch would begin a new
// block of instructions, and ptxas reads shared memory before the first copy of each.
__device__ inline void cp_async_if(std::uint32_t shared, const char* global, int x, int bound) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.gt.s32 p, %2, %3;\n"
      "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n}\n" ::"r"(shared),
      "l"(global), "r"(x), "r"(bound)
      : "memory");
}

// Copies 16 bytes if x > x_bound and y > y_bound, else writes zeros. It is for unrolled loops: with
// the comparisons in the asm, the compiler keeps two counters in registers instead of one predicate
// for each copy.
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

// Copies one element of 4 or 8 bytes, or writes zero without a read. It goes through L1, since .cg
// supports 16 bytes only.
template <int kSize>
__device__ inline void cp_async_element(std::uint32_t shared, const char* global, bool exists) {
  static_assert(kSize == 4 || kSize == 8);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
               "n"(kSize), "r"(exists ? kSize : 0)
               : "memory");
}

// Copies one 32-bit word.
__device__ inline void cp_async_b32(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

// Hides the origin of a pointer from the compiler. The compiler then increments one pointer from
// copy to copy; otherwise it computes one address for each copy and keeps all of them in registers.
__device__ inline void hide_origin(const char*& pointer) { asm volatile("" : "+l"(pointer)); }

__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kGroups of this thread's groups are in flight. Other threads see the copied
// bytes after a barrier.
template <int kGroups>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Arrives on an mbarrier when this thread's copies so far are complete. With .noinc this is one of
// the arrivals that the barrier was initialised with.
__device__ inline void cp_async_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace tcgemm::ptx
