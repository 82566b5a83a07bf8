// Quantising f16, bf16 and f32.
#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/passes/quantize_blocks.cuh"
#include "kernels/passes/quantize_rows.cuh"

namespace tcgemm::kernels {
namespace {

namespace passes = tcgemm::passes;

static_assert(kQuantizeThreads == passes::kQuantizeBlock);

template <class GemmConfig>
const void* pointer(GemmConfig* kernel) {
  return reinterpret_cast<const void*>(kernel);
}

// Can `threads` hold a row, and another chunk if it begins between words of its values?
bool holds(int threads, const QuantizeParams& params) {
  const int elements = passes::kChunk / bytes(params.x.dtype);
  return params.cols + elements <= threads * passes::kThreadLines * passes::kHeld * elements;
}

template <DType kType>
const void* choose(const QuantizeParams& params, Granularity granularity) {
  switch (granularity) {
    case Granularity::tensor:
      return pointer(&passes::quantize_tensor<kType>);
    case Granularity::block_1x128:
      return pointer(&passes::quantize_1x128<kType>);
    case Granularity::block_128x128:
      return pointer(&passes::quantize_128x128<kType>);
    case Granularity::row:
      break;
  }
  if (holds(32, params)) return pointer(&passes::quantize_rows<kType, 32, false>);
  if (holds(kQuantizeThreads, params))
    return pointer(&passes::quantize_rows<kType, kQuantizeThreads, false>);
  return pointer(&passes::quantize_rows<kType, kQuantizeThreads, true>);
}

int grid(std::int64_t blocks) { return int(std::min<std::int64_t>(blocks, 2147483647)); }

}  // namespace

const void* quantize_amax(const QuantizeParams& params) {
  switch (params.x.dtype) {
    case DType::f16:
      return pointer(&passes::largest_of_tensor<DType::f16>);
    case DType::bf16:
      return pointer(&passes::largest_of_tensor<DType::bf16>);
    default:
      return pointer(&passes::largest_of_tensor<DType::f32>);
  }
}

const void* quantize(const QuantizeParams& params, Granularity granularity) {
  switch (params.x.dtype) {
    case DType::f16:
      return choose<DType::f16>(params, granularity);
    case DType::bf16:
      return choose<DType::bf16>(params, granularity);
    default:
      return choose<DType::f32>(params, granularity);
  }
}

int quantize_amax_blocks(const QuantizeParams& params) {
  return grid(passes::spans(passes::flat(params), bytes(params.x.dtype)));
}

int quantize_blocks(const QuantizeParams& params, Granularity granularity) {
  const std::int64_t rows = params.rows * params.batch;
  const int elements = passes::kChunk / bytes(params.x.dtype);
  switch (granularity) {
    case Granularity::tensor:
      return quantize_amax_blocks(params);
    case Granularity::row:
      return grid(holds(32, params) ? passes::ceil_div(rows, passes::kWarps) : rows);
    case Granularity::block_1x128:
      return grid(passes::ceil_div(rows * passes::ceil_div(params.cols, passes::kQuad),
                                   kQuantizeThreads * elements / kScaleBlock));
    default:
      return grid(params.batch * passes::ceil_div(params.rows, kScaleBlock) *
                  passes::ceil_div(params.cols, kScaleBlock));
  }
}

}  // namespace tcgemm::kernels
