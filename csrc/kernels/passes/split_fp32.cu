// The passes that split f32 operands into 16-bit parts.
#include <algorithm>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/passes/split_fp32_first.cuh"
#include "kernels/passes/split_fp32_second.cuh"

namespace tcgemm::kernels {
namespace {

namespace prepare = tcgemm::prepare;

}  // namespace

static_assert(kSplitThreads == prepare::kSplitBlock);

const void* split_first() { return reinterpret_cast<const void*>(&prepare::split_in_f16); }
const void* split_second() { return reinterpret_cast<const void*>(&prepare::split_in_bf16); }

void split_cut(SplitParams& params) {
  if (params.count == 2 && !params.operands[0].mn_major)
    std::swap(params.operands[0], params.operands[1]);
  int cluster = 0;
  for (int i = 0; i < params.count; ++i) {
    SplitOperand& operand = params.operands[i];
    operand.cut = prepare::cut_of(operand);
    if (operand.mn_major) cluster = std::max(cluster, prepare::strip_cluster(operand));
  }
  for (int i = 0; i < params.count; ++i) prepare::share(params.operands[i], cluster);
  params.cluster = 1 << cluster;
}

int split_notes(const SplitOperand& operand) { return prepare::cut_of(operand).notes; }

int split_first_blocks(const SplitParams& params) {
  int blocks = 0;
  for (int i = 0; i < params.count; ++i) blocks += params.operands[i].cut.blocks;
  return blocks;
}

// At least one, for the verdict; and few, as mostly they do nothing else.
int split_second_blocks(const SplitParams& params) {
  constexpr int kMost = 4 * 132;
  int blocks = 1;
  for (int i = 0; i < params.count; ++i)
    blocks = std::max(blocks, prepare::second_units(params.operands[i]));
  return std::min(blocks, kMost);
}

}  // namespace tcgemm::kernels
