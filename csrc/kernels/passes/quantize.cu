// Selects the quantization kernels of f16, bf16 and f32.
#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/passes/quantize_blocks.cuh"
#include "kernels/passes/quantize_rows.cuh"

namespace tcgemm::kernels {
namespace {

template <class Kernel>
const void* pointer(Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}

// Returns whether `threads` threads can cache a row in shared memory. One more vector is allowed
// for: vectors are aligned to the values, so the first one may start before the row.
bool row_fits(int threads, const QuantizeParams& params) {
  const int elements = passes::kVectorBytes / bytes(params.x.dtype);
  return params.cols + elements <=
         threads * passes::kRowsPerThread * passes::kCachedRounds * elements;
}

template <DType kType, bool kGiven>
const void* select_kernel(const QuantizeParams& params, Granularity granularity) {
  switch (granularity) {
    case Granularity::tensor: return pointer(&passes::quantize_tensor<kType, kGiven>);
    case Granularity::block_1x128: return pointer(&passes::quantize_1x128<kType, kGiven>);
    case Granularity::block_128x128: return pointer(&passes::quantize_128x128<kType, kGiven>);
    case Granularity::row: break;
  }
  if (row_fits(32, params)) return pointer(&passes::quantize_rows<kType, 32, false, kGiven>);
  if (row_fits(kQuantizeThreads, params))
    return pointer(&passes::quantize_rows<kType, kQuantizeThreads, false, kGiven>);
  return pointer(&passes::quantize_rows<kType, kQuantizeThreads, true, kGiven>);
}

template <DType kType>
const void* select_kernel(const QuantizeParams& params, Granularity granularity) {
  return params.given ? select_kernel<kType, true>(params, granularity)
                      : select_kernel<kType, false>(params, granularity);
}

int clamp_grid(std::int64_t blocks) { return int(std::min<std::int64_t>(blocks, 2147483647)); }

}  // namespace

const void* quantize_amax(const QuantizeParams& params) {
  switch (params.x.dtype) {
    case DType::f16: return pointer(&passes::amax_of_tensor<DType::f16>);
    case DType::bf16: return pointer(&passes::amax_of_tensor<DType::bf16>);
    default: return pointer(&passes::amax_of_tensor<DType::f32>);
  }
}

const void* quantize(const QuantizeParams& params, Granularity granularity) {
  switch (params.x.dtype) {
    case DType::f16: return select_kernel<DType::f16>(params, granularity);
    case DType::bf16: return select_kernel<DType::bf16>(params, granularity);
    default: return select_kernel<DType::f32>(params, granularity);
  }
}

int quantize_amax_blocks(const QuantizeParams& params) {
  return clamp_grid(passes::tensor_tiles(passes::flatten(params), bytes(params.x.dtype)));
}

int quantize_blocks(const QuantizeParams& params, Granularity granularity) {
  const std::int64_t rows = params.rows * params.batch;
  const int elements = passes::kVectorBytes / bytes(params.x.dtype);
  switch (granularity) {
    case Granularity::tensor: return quantize_amax_blocks(params);
    case Granularity::row:
      return clamp_grid(row_fits(32, params) ? passes::ceil_div(rows, passes::kQuantizeWarps)
                                             : rows);
    case Granularity::block_1x128:
      return clamp_grid(passes::ceil_div(rows * passes::ceil_div(params.cols, passes::kUnitColumns),
                                         kQuantizeThreads * elements / kScaleBlock));
    case Granularity::block_128x128: break;
  }
  return clamp_grid(params.batch * passes::ceil_div(params.rows, kScaleBlock) *
                    passes::ceil_div(params.cols, kScaleBlock));
}

}  // namespace tcgemm::kernels
