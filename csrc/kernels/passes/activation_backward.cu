// Selects and partitions the backward of an activation and of a bias.
#include "kernels/passes/activation_backward.cuh"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"

namespace tcgemm::kernels {
namespace {

template <DType kType>
const void* select_kernel(Activation activation) {
  return with_activation(activation, [&]<Activation kActivation>() {
    return reinterpret_cast<const void*>(&passes::activation_backward<kType, kActivation>);
  });
}

// Microseconds on an H200. The CTAs of a wave share the rate of the memory, which 80 % of a wave
// reaches. In a short last wave each CTA gets up to four times as much of the rate.
double estimate(double waves, std::int64_t rows_per_split, bool activates, bool adds_splits) {
  constexpr double kRow = 0.067, kWave = 1.5, kAddition = 2.0;  // kRow: of a CTA that reads g
  const double whole = std::floor(waves), rest = waves - whole;
  const double share = whole + (rest > 0 ? std::max(rest, whole > 0 ? 0.25 : 0.8) : 0);
  return share * double(rows_per_split) * kRow * (activates ? 3 : 1) + std::ceil(waves) * kWave +
         (adds_splits ? kAddition : 0);
}

int clamp_grid(std::int64_t blocks) { return int(std::min<std::int64_t>(blocks, 2147483647)); }

}  // namespace

const void* activation_backward(const ActivationBackwardParams& params, Activation activation) {
  switch (params.g.dtype) {
    case DType::f16: return select_kernel<DType::f16>(activation);
    case DType::bf16: return select_kernel<DType::bf16>(activation);
    default: return select_kernel<DType::f32>(activation);
  }
}

const void* add_partial_sums() { return reinterpret_cast<const void*>(&passes::add_partial_sums); }

void partition_activation_backward(ActivationBackwardParams& params, int multiprocessors) {
  const std::int64_t vectors =
      ceil_div(params.cols * bytes(params.g.dtype), std::int64_t(kVectorBytes));
  params.log_lanes = 0;
  while (params.log_lanes < 5 && 1 << params.log_lanes < vectors) ++params.log_lanes;
  const bool activates = params.gz != nullptr;
  // Rows of a part of a round are read one by one.
  const std::int64_t groups = kActivationBackwardThreads >> params.log_lanes;
  const std::int64_t round = passes::rows_at_once(activates) * groups;
  const std::int64_t rows = std::max<std::int64_t>(params.rows, 1);
  const std::int64_t blocks = std::max<std::int64_t>(passes::column_blocks(params), 1);
  const std::int64_t slots = passes::kBlocksPerMultiprocessor * multiprocessors;
  const std::int64_t most = std::min(ceil_div(rows, round), 4 * slots / blocks + 1);
  double best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    const std::int64_t rows_per_split = round_up(ceil_div(rows, splits), round);
    const std::int64_t count = ceil_div(rows, rows_per_split);
    const double time =
        estimate(double(blocks * count) / double(slots), rows_per_split, activates, count > 1);
    if (splits > 1 && time >= best) continue;
    best = time;
    params.rows_per_split = rows_per_split;
    params.splits = int(count);
  }
}

int activation_backward_blocks(const ActivationBackwardParams& params) {
  return clamp_grid(passes::column_blocks(params) * params.splits);
}

int add_partial_sums_blocks(const ActivationBackwardParams& params) {
  return clamp_grid(ceil_div(params.cols, passes::kReducedColumns));
}

}  // namespace tcgemm::kernels
