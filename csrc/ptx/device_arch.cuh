// The only place that asks which architecture is being compiled for.
#pragma once

namespace tcgemm::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kSm90a = true;
#else
inline constexpr bool kSm90a = false;
#endif

}  // namespace tcgemm::ptx
