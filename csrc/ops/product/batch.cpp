// Merges batch dimensions as far as every operand's strides allow.
#include "ops/product/batch.h"

#include <algorithm>
#include <utility>

#include "core/params.h"
#include "ops/product/batch_invariant.h"

namespace tcgemm::ops {
namespace {

std::int64_t batch_stride(const CheckedOperand& operand, std::int64_t d, std::int64_t batch_dims) {
  const std::int64_t own = d - (batch_dims - operand.batch_dims);
  if (own < 0 || operand.view.sizes[own] == 1) return 0;
  return operand.view.strides[own];
}

// The order of the merges:
//
//   dimensions, innermost first:   rows | batch -1 | batch -2 | ...
//
// Two adjacent dimensions merge if outer stride == inner size * inner stride for every operand.
// Batch dimensions that b, its scales and its zero points lack merge into the rows: (..., M, K) @
// (K, N) is one tall GEMM.
//
// One value of scale_a serves 1 << shift elements of `inner`.
bool merge(StridedDim& inner, const StridedDim& outer, int shift = 0) {
  // The kernels hold extents and counts in 32 bits.
  if (inner.size > kLargestExtent / outer.size) return false;
  if (inner.size % (1 << shift) != 0) return false;
  const bool is_unit = inner.size == 1;
  for (const Slot slot : kBatchedSlots) {
    const std::int64_t step_count = slot == Slot::scale_a ? inner.size >> shift : inner.size;
    if (!is_unit && outer.stride[slot] != step_count * inner.stride[slot]) return false;
  }
  if (is_unit) inner.stride = outer.stride;
  inner.size *= outer.size;
  return true;
}

// torch gives a dimension of size 1 any stride. No kernel steps along it, but the planner reads
// alignment and leading dimension from it. It becomes the stride of an aligned matrix: the extent
// of the other dimension, rounded up to 16 elements.
void set_unit_dim_strides(Matrix& matrix, std::int64_t rows, std::int64_t cols) {
  const auto pitch = [](std::int64_t size) { return (size + 15) / 16 * 16; };
  if (cols == 1) matrix.stride_col = rows == 1 || matrix.stride_row != 1 ? 1 : pitch(rows);
  if (rows == 1) matrix.stride_row = matrix.stride_col == 1 ? pitch(cols) : 1;
}

// Can rows continue into the next matrix of the batch: is everything on b's side the same for it?
bool shares_b(const StridedDim& outer) {
  for (const Slot slot : kBatchedWithB)
    if (outer.stride[slot] != 0) return false;
  return true;
}

Operand operand_of(const CheckedGemm& checked, Slot slot, const StridedDim& rows,
                   const StridedDim& batch) {
  const CheckedOperand& source = checked[slot];
  Operand operand;
  operand.address = source.view.address;
  operand.dtype = source.view.dtype;
  if (kRowsOfResult.contains(slot))
    operand.stride_row = rows.stride[slot];
  else
    operand.stride_row = source.rows == 1 ? 0 : source.stride_row;
  operand.stride_col = source.cols == 1 ? 0 : source.stride_col;
  operand.stride_batch = batch.size == 1 ? 0 : batch.stride[slot];
  operand.shift_row = source.shift_row;
  operand.shift_col = source.shift_col;
  return operand;
}

// The tensors that collapse() sets. Opaque bytes and amax are set by others.
constexpr SlotSet kStrided =
    kAllSlots - slots_with(DTypeRule::bytes) - slots_with(DTypeRule::statistic);
// The tensors among them that the planner analyzes: a, b and out.
constexpr SlotSet kMatrices = slots_with(DTypeRule::operand) | slots_with(DTypeRule::result);

}  // namespace

void collapse(const CheckedGemm& checked, double alpha, double beta, BatchedProblem& batched) {
  StridedDim rows{checked.m, {}};
  for (const Slot slot : kRowsOfResult)
    rows.stride[slot] = checked[slot].rows == 1 ? 0 : checked[slot].stride_row;

  batched.loop_dims = 0;
  for (std::int64_t d = checked.batch_dims - 1; d >= 0; --d) {
    if (checked.batch[d] == 1) continue;
    StridedDim outer{checked.batch[d], {}};
    for (const Slot slot : kBatchedSlots)
      outer.stride[slot] = batch_stride(checked[slot], d, checked.batch_dims);
    if (batched.loop_dims == 0 && checked.grouped == Axis::one && shares_b(outer) &&
        merge(rows, outer, checked[Slot::scale_a].shift_row))
      continue;
    if (batched.loop_dims > 0 && merge(batched.loop[batched.loop_dims - 1], outer)) continue;
    batched.loop[batched.loop_dims++] = outer;
  }

  // The longest loop becomes the problem's own batch dimension: this needs the fewest launches.
  StridedDim batch{1, {}};
  if (batched.loop_dims > 0) {
    StridedDim* const end = batched.loop + batched.loop_dims;
    StridedDim* const longest =
        std::max_element(batched.loop, end,
                         [](const StridedDim& x, const StridedDim& y) { return x.size < y.size; });
    batch = *longest;
    std::move(longest + 1, end, longest);
    --batched.loop_dims;
  }

  Problem& p = batched.problem;
  p.batch = batch.size;
  p.m = rows.size;
  p.n = checked.n;
  p.k = checked.k;
  for (const Slot slot : kStrided) {
    const bool is_given = checked[slot].view || kMatrices.contains(slot);
    if (!is_given || (slot == Slot::c && beta == 0)) continue;
    p.set(slot, operand_of(checked, slot, rows, batch));
    const std::int64_t row_count = kRowsOfResult.contains(slot) ? p.m : checked[slot].rows;
    if (kMatrices.contains(slot)) set_unit_dim_strides(p[slot], row_count, checked[slot].cols);
  }
  p.input_a = checked.input_a;
  p.input_b = checked.input_b;
  p.accumulator = checked.accumulator;
  p.promote = checked.promote;
  p.as_prepared = checked.as_prepared;
  p.activation = checked.activation;
  p.binary = checked.binary;
  p.grouped = checked.grouped;
  p.alpha = alpha;
  p.beta = beta;
}

void make_problems(const Operator& op, const CheckedGemm& checked, const Arguments& arguments,
                   BatchedProblem& batched) {
  collapse(checked, arguments.alpha, arguments.beta, batched);
  bind_terms(op, checked, batched.problem);
  bind_sparse(checked, batched.problem);
  set_packed_weight(checked, batched.problem);
  if (arguments.accumulate) batched.problem.set(Slot::c, batched.problem[Slot::out]);
  if (arguments.constant_b) batched.problem.constant = ConstantOperand::b;
  batched.problem.batch_invariant = arguments.batch_invariant || is_batch_invariant();
  batched.problem.one_slice = arguments.one_slice;
}

}  // namespace tcgemm::ops
