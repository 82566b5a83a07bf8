// Encoding tensor maps: what the driver wants of a matrix that TMA will read or write.
#include "launch/tensor_map.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tcgemm::launch {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

// From the driver itself, so that the library needs no libcuda to be loaded.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* pointer = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &pointer, 12000, cudaEnableDefault,
                                     &result);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(pointer);
  }();
  if (function == nullptr)
    throw std::runtime_error(
        "tcgemm: the CUDA driver has no cuTensorMapEncodeTiled, which kernels for Hopper need; "
        "update it to one for CUDA 12.0 or later.");
  return function;
}

// tf32: f32 in memory, rounded to nearest on its way to shared memory. 8 bits have no type there.
CUtensorMapDataType map_type(DType type) {
  switch (type) {
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::tf32:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case DType::f64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::s32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

// Where there is one line or one matrix, its pitch is never used; the driver still wants a valid
// one.
std::uint64_t pitch_of(const TensorMapDesc& lines) {
  const std::uint64_t size = bytes(lines.dtype);
  return lines.outer == 1 ? (lines.inner * size + 15) / 16 * 16 : lines.pitch * size;
}

template <int kRank>
TensorMap encode(const TensorMapDesc& lines, const cuuint64_t (&extent)[kRank],
                 const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank]) {
  cuuint32_t steps[kRank];
  std::fill_n(steps, kRank, 1u);
  CUtensorMap map;
  const CUresult status = encoder()(
      &map, map_type(lines.dtype), kRank, reinterpret_cast<void*>(lines.address), extent, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      lines.box_inner * bytes(lines.dtype) == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_128B,
      lines.ahead ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error(
        "tcgemm: the driver refused a tensor map (error " + std::to_string(int(status)) + ") of " +
        std::to_string(lines.inner) + " x " + std::to_string(lines.outer) + " x " +
        std::to_string(lines.batch) + " elements, pitch " + std::to_string(lines.pitch) +
        ", batch pitch " + std::to_string(lines.batch_pitch) +
        "; this is a defect of tcgemm's planner: please report the shapes and strides.");
  TensorMap result;
  std::memcpy(&result, &map, sizeof result);
  return result;
}

}  // namespace

TensorMap tensor_map(const TensorMapDesc& lines) {
  const std::uint64_t pitch = pitch_of(lines);
  const bool batched = lines.batch > 1 && lines.batch_pitch != 0;
  const std::uint64_t next = batched ? lines.batch_pitch * bytes(lines.dtype) : pitch;
  return encode<3>(
      lines,
      {cuuint64_t(lines.inner), cuuint64_t(lines.outer), cuuint64_t(batched ? lines.batch : 1)},
      {pitch, next}, {cuuint32_t(lines.box_inner), cuuint32_t(lines.box_outer), 1});
}

TensorMap interleaved_map(const TensorMapDesc& lines) {
  const std::uint64_t pitch = pitch_of(lines);
  return encode<4>(lines, {cuuint64_t(lines.inner), 8, 2, cuuint64_t((lines.outer + 15) / 16)},
                   {2 * pitch, pitch, 16 * pitch},
                   {cuuint32_t(lines.box_inner), 8, 2, cuuint32_t(lines.box_outer / 16)});
}

}  // namespace tcgemm::launch
