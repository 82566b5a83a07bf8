// The architecture of the current device compilation. No other file reads these macros.
#pragma once

namespace tcgemm::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kSm90a = true;
#else
inline constexpr bool kSm90a = false;
#endif

// The compute capability that is compiled for, 10 * major + minor; 0 in host compilation.
#if defined(__CUDA_ARCH__)
inline constexpr int kArch = __CUDA_ARCH__ / 10;
#else
inline constexpr int kArch = 0;
#endif

}  // namespace tcgemm::ptx
