// Encodes tensor maps (CUtensorMap) for matrices that TMA reads or writes.
#include "launch/tensor_map.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "launch/launch_kernel.h"

namespace tcgemm::launch {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  if (function == nullptr)
    throw std::runtime_error(
        "tcgemm: the CUDA driver has no cuTensorMapEncodeTiled, which kernels for Hopper need; "
        "update it to one for CUDA 12.0 or later.");
  return function;
}

// With tf32 TMA rounds f32 to nearest while it copies to shared memory. All 8-bit types map to
// UINT8.
CUtensorMapDataType map_type(DType type) {
  switch (type) {
    case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::tf32: return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case DType::f64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::s32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::e4m3:
    case DType::e5m2:
    case DType::s8:
    case DType::u8:
    case DType::s4:
    case DType::u4:
    case DType::b1: break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

CUtensorMapL2promotion l2_promotion(int size) {
  return size == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
         : size == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                       : CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
}

// With outer == 1 TMA does not use the pitch, but the driver requires a multiple of 16 bytes.
std::uint64_t pitch_of(const TensorMapDesc& desc) {
  const std::uint64_t size = bytes(desc.dtype);
  return desc.outer == 1 ? (desc.inner * size + 15) / 16 * 16 : desc.pitch * size;
}

template <int kRank>
TensorMap encode(const TensorMapDesc& desc, const cuuint64_t (&extent)[kRank],
                 const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank]) {
  cuuint32_t steps[kRank];
  std::fill_n(steps, kRank, 1u);
  CUtensorMap map;
  const CUresult status =
      encoder()(&map, map_type(desc.dtype), kRank, reinterpret_cast<void*>(desc.address), extent,
                strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                desc.box_inner * bytes(desc.dtype) == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                         : CU_TENSOR_MAP_SWIZZLE_128B,
                l2_promotion(desc.l2_promotion), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error(
        "tcgemm: the driver refused a tensor map (error " + std::to_string(int(status)) + ") of " +
        std::to_string(desc.inner) + " x " + std::to_string(desc.outer) + " x " +
        std::to_string(desc.batch) + " elements, pitch " + std::to_string(desc.pitch) +
        ", batch pitch " + std::to_string(desc.batch_pitch) +
        "; this is a defect of tcgemm's planner: please report the shapes and strides.");
  TensorMap result;
  std::memcpy(&result, &map, sizeof result);
  return result;
}

}  // namespace

TensorMap tensor_map(const TensorMapDesc& desc) {
  const std::uint64_t pitch = pitch_of(desc);
  const bool batched = desc.batch > 1 && desc.batch_pitch != 0;
  const std::uint64_t batch_pitch = batched ? desc.batch_pitch * bytes(desc.dtype) : pitch;
  return encode<3>(
      desc, {cuuint64_t(desc.inner), cuuint64_t(desc.outer), cuuint64_t(batched ? desc.batch : 1)},
      {pitch, batch_pitch}, {cuuint32_t(desc.box_inner), cuuint32_t(desc.box_outer), 1});
}

TensorMap interleaved_map(const TensorMapDesc& desc) {
  const std::uint64_t pitch = pitch_of(desc);
  return encode<4>(desc, {cuuint64_t(desc.inner), 8, 2, cuuint64_t((desc.outer + 15) / 16)},
                   {2 * pitch, pitch, 16 * pitch},
                   {cuuint32_t(desc.box_inner), 8, 2, cuuint32_t(desc.box_outer / 16)});
}

}  // namespace tcgemm::launch
