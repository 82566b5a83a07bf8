#include "ops/product/strips.h"

#include <algorithm>

namespace tcgemm::ops {

Problem strip_of(Problem problem, Axis axis, std::int64_t first, std::int64_t extent) {
  for (const Slot slot : problem.operands.given()) {
    Operand& x = problem[slot];
    std::int64_t offset = 0;
    if (operand_row(slot).rows == axis) offset += (first >> x.shift_row) * x.stride_row;
    if (operand_row(slot).cols == axis) offset += (first >> x.shift_col) * x.stride_col;
    x.address += bytes_of(offset, x.dtype);
  }
  (axis == Axis::m ? problem.m : axis == Axis::n ? problem.n : problem.k) = extent;
  return problem;
}

Problem matrices_of(Problem problem, std::int64_t first, std::int64_t count) {
  for (const Slot slot : problem.operands.given() & kBatchedSlots)
    problem[slot].address += bytes_of(first * problem[slot].stride_batch, problem[slot].dtype);
  problem.batch = count;
  return problem;
}

Strips::Strips(const Problem& problem, const Plan& plan)
    : problem_(problem), matrices_(problem.batch), rows_(problem.m) {
  constexpr std::int64_t kRows = 256;  // a part has a multiple of them: a whole number of tiles
  // The rows of a 2:4 operand and of a packed weight lie in blocks.
  const bool has_strips = !problem.has_any({Slot::sparse_a, Slot::packed_a});
  if (!problem.batch_invariant || plan.stored_slices() == 1 || !has_strips) return;
  const std::int64_t row = plan.stored_slices() * problem.n * bytes(partial_sums_dtype(problem));
  const std::int64_t most_rows = std::max<std::int64_t>(1, kMostSumsBytes / row);
  if (problem.batch * problem.m <= most_rows) return;
  matrices_ = std::max<std::int64_t>(1, most_rows / problem.m);
  if (problem.m > most_rows)
    rows_ = std::min(problem.m, std::max(kRows, most_rows / kRows * kRows));
}

Problem Strips::operator[](std::int64_t index) const {
  if (count() == 1) return problem_;
  const std::int64_t strips = ceil_div(problem_.m, rows_);
  const std::int64_t matrix = index / strips * matrices_, row = index % strips * rows_;
  Problem part = matrices_of(problem_, matrix, std::min(matrices_, problem_.batch - matrix));
  part = strip_of(part, Axis::m, row, std::min(rows_, problem_.m - row));
  part.amax_continues |= index > 0;
  return part;
}

}  // namespace tcgemm::ops
