// Selects and partitions the passes that split f32 operands into 16-bit terms.
#include <algorithm>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/passes/split_fp32_first.cuh"
#include "kernels/passes/split_fp32_second.cuh"

namespace tcgemm::kernels {

const void* split_first() { return reinterpret_cast<const void*>(&passes::split_in_f16); }
const void* split_second() { return reinterpret_cast<const void*>(&passes::split_in_bf16); }

void partition_split(SplitFp32PassParams& params) {
  if (params.count == 2 && !params.operands[0].mn_major)
    std::swap(params.operands[0], params.operands[1]);
  int cluster = 0;
  for (int i = 0; i < params.count; ++i) {
    SplitFp32Operand& operand = params.operands[i];
    operand.partition = passes::partition_of(operand);
    if (operand.mn_major) cluster = std::max(cluster, passes::log_strip_cluster(operand));
  }
  for (int i = 0; i < params.count; ++i) passes::partition_for_cluster(params.operands[i], cluster);
  params.cluster = 1 << cluster;
}

int split_statistics_count(const SplitFp32Operand& operand) {
  return passes::partition_of(operand).statistics;
}

int split_first_blocks(const SplitFp32PassParams& params) {
  int blocks = 0;
  for (int i = 0; i < params.count; ++i) blocks += params.operands[i].partition.blocks;
  return blocks;
}

// At least one CTA computes the decision. At most four per SM of an H200 are launched, since they
// mostly do nothing else.
int split_second_blocks(const SplitFp32PassParams& params) {
  constexpr int kMaxBlocks = 4 * 132;
  int blocks = 1;
  for (int i = 0; i < params.count; ++i)
    blocks = std::max(blocks, passes::second_units(params.operands[i]));
  return std::min(blocks, kMaxBlocks);
}

}  // namespace tcgemm::kernels
