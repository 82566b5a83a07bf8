// Selects and partitions the backward of an activation and of a bias.
#include "kernels/passes/activation_backward.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;  // two waves: the end of the last one is short

template <DType kType>
const void* select_kernel(Activation activation) {
  const auto pointer = [](auto* kernel) { return reinterpret_cast<const void*>(kernel); };
  switch (activation) {
    case Activation::none:
      return pointer(&passes::activation_backward<kType, Activation::none>);
    case Activation::relu:
      return pointer(&passes::activation_backward<kType, Activation::relu>);
    case Activation::gelu:
      return pointer(&passes::activation_backward<kType, Activation::gelu>);
    case Activation::gelu_tanh:
      return pointer(&passes::activation_backward<kType, Activation::gelu_tanh>);
    default:
      return pointer(&passes::activation_backward<kType, Activation::silu>);
  }
}

int clamp_grid(std::int64_t blocks) { return int(std::min<std::int64_t>(blocks, 2147483647)); }

}  // namespace

const void* activation_backward(const ActivationBackwardParams& params, Activation activation) {
  switch (params.g.dtype) {
    case DType::f16:
      return select_kernel<DType::f16>(activation);
    case DType::bf16:
      return select_kernel<DType::bf16>(activation);
    default:
      return select_kernel<DType::f32>(activation);
  }
}

const void* add_partial_sums() { return reinterpret_cast<const void*>(&passes::add_partial_sums); }

void partition_activation_backward(ActivationBackwardParams& params, int multiprocessors) {
  const std::int64_t vectors =
      ceil_div(params.cols * bytes(params.g.dtype), std::int64_t(kVectorBytes));
  params.log_lanes = 0;
  while (params.log_lanes < 5 && 1 << params.log_lanes < vectors) ++params.log_lanes;
  const std::int64_t groups = kActivationBackwardThreads >> params.log_lanes;
  const std::int64_t blocks = std::max<std::int64_t>(passes::column_blocks(params), 1);
  // Every thread has four rows or more.
  const std::int64_t most = ceil_div(params.rows, 4 * groups);
  const std::int64_t wanted = ceil_div(kBlocksPerMultiprocessor * multiprocessors, blocks);
  const std::int64_t splits = std::max<std::int64_t>(std::min(most, wanted), 1);
  params.rows_per_split =
      std::max<std::int64_t>(round_up(ceil_div(params.rows, splits), groups), 1);
  params.splits = std::max(int(ceil_div(params.rows, params.rows_per_split)), 1);
}

int activation_backward_blocks(const ActivationBackwardParams& params) {
  return clamp_grid(passes::column_blocks(params) * params.splits);
}

int add_partial_sums_blocks(const ActivationBackwardParams& params) {
  return clamp_grid(ceil_div(params.cols, passes::kReducedColumns));
}

}  // namespace tcgemm::kernels
