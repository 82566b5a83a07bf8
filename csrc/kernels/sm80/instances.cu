// The kernels of one unit (kernels/units.h) of sm_80 and sm_89. The build defines the
// list of them, TCGEMM_UNIT_KERNELS, and a macro with the name of their mainloop.
#include "kernels/entry.cuh"

#if defined(TCGEMM_MAINLOOP_dense) || defined(TCGEMM_MAINLOOP_sparse)
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/cp_async.cuh"
#define TCGEMM_TEMPLATES sm80::Gemm, sm80::CpAsyncMainloop
#elif defined(TCGEMM_MAINLOOP_packed)
#include "kernels/sm80/kernel.cuh"
#include "kernels/sm80/mainloop/packed.cuh"
#define TCGEMM_TEMPLATES sm80::Gemm, sm80::PackedMainloop
#elif defined(TCGEMM_MAINLOOP_fp64)
#include "kernels/sm80/fp64/kernel.cuh"
#include "kernels/sm80/fp64/mainloop.cuh"
#define TCGEMM_TEMPLATES sm80::Fp64Gemm, sm80::Fp64Mainloop
#elif defined(TCGEMM_MAINLOOP_packed_gemv)
#include "kernels/gemv/kernel.cuh"
#include "kernels/gemv/packed.cuh"
#define TCGEMM_TEMPLATES gemv::Gemv, gemv::PackedGemvMainloop
#else
#error "no mainloop of this folder"
#endif

using namespace tcgemm;
[[maybe_unused]] static const bool kIsFilledIn = kernels::fill_in<TCGEMM_TEMPLATES>();
