// The only place that asks which architecture is being compiled for.
#pragma once

namespace tcgemm::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kSm90a = true;
#else
inline constexpr bool kSm90a = false;
#endif

// Code for this compute capability, 10 * major + minor, or newer; 0 where the host compiles.
#if defined(__CUDA_ARCH__)
inline constexpr int kArch = __CUDA_ARCH__ / 10;
#else
inline constexpr int kArch = 0;
#endif

}  // namespace tcgemm::ptx
