// 32-bit addresses of shared memory, as the instructions of this folder take them, and loads by
// such addresses. The compiler does not move these loads across barriers.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void store_shared_f64(std::uint32_t address, double value) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(address), "d"(value) : "memory");
}

__device__ inline double load_shared_f64(std::uint32_t address) {
  double value;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline float load_shared_f32(std::uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline std::uint32_t load_shared_b32(std::uint32_t address) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

__device__ inline void store_shared_b32(std::uint32_t address, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

__device__ inline void store_shared_pair(std::uint32_t address, const uint2& x) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x.x), "r"(x.y) : "memory");
}

__device__ inline uint2 load_shared_pair(std::uint32_t address) {
  uint2 pair;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(pair.x), "=r"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

__device__ inline void store_shared_vector(std::uint32_t address, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

__device__ inline uint4 load_shared_vector(std::uint32_t address) {
  uint4 vector;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "r"(address)
               : "memory");
  return vector;
}

}  // namespace tcgemm::ptx
