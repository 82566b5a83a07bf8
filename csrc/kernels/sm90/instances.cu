// The kernels of one unit (kernels/units.h) of sm_90a. The build defines the
// list of them, TCGEMM_UNIT_KERNELS, and a macro with the name of their mainloop.
#include "kernels/entry.cuh"

#if defined(TCGEMM_MAINLOOP_dense)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/dense.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::DenseMainloop
#elif defined(TCGEMM_MAINLOOP_rs)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/rs.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::RsMainloop
#elif defined(TCGEMM_MAINLOOP_promoted) || defined(TCGEMM_MAINLOOP_block_scaled)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/promoted.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::PromotedMainloop
#elif defined(TCGEMM_MAINLOOP_sparse)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/sparse.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::SparseMainloop
#elif defined(TCGEMM_MAINLOOP_split_fp32)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/split_fp32.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::SplitFp32Mainloop
#elif defined(TCGEMM_MAINLOOP_tf32x2)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/tf32x2.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::Tf32x2Mainloop
#elif defined(TCGEMM_MAINLOOP_packed)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/packed.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::PackedMainloop
#elif defined(TCGEMM_MAINLOOP_packed_mma)
#include "kernels/sm90/kernel.cuh"
#include "kernels/sm90/mainloop/packed_mma.cuh"
#define TCGEMM_TEMPLATES sm90::Gemm, sm90::PackedMmaMainloop
#elif defined(TCGEMM_MAINLOOP_fp64)
#include "kernels/sm90/fp64/kernel.cuh"
#include "kernels/sm90/fp64/mainloop.cuh"
#define TCGEMM_TEMPLATES sm90::Fp64Gemm, sm90::Fp64Mainloop
#elif defined(TCGEMM_MAINLOOP_gemv)
#include "kernels/gemv/kernel.cuh"
#include "kernels/gemv/mainloop.cuh"
#define TCGEMM_TEMPLATES gemv::Gemv, gemv::GemvMainloop
#elif defined(TCGEMM_MAINLOOP_packed_gemv)
#include "kernels/gemv/kernel.cuh"
#include "kernels/gemv/packed.cuh"
#define TCGEMM_TEMPLATES gemv::Gemv, gemv::PackedGemvMainloop
#elif defined(TCGEMM_MAINLOOP_thin)
#include "kernels/thin/kernel.cuh"
#include "kernels/thin/mainloop.cuh"
#define TCGEMM_TEMPLATES thin::Thin, thin::ThinMainloop
#else
#error "no mainloop of this folder"
#endif

using namespace tcgemm;
[[maybe_unused]] static const bool kIsFilledIn = kernels::fill_in<TCGEMM_TEMPLATES>();
