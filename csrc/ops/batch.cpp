// Merges batch dimensions as far as every operand's strides allow.
//
//   dimensions, innermost first:   rows | batch -1 | batch -2 | ...
//
// Two adjacent dimensions merge if outer stride == inner size * inner stride for every operand.
// Batch dimensions that b, its scales and its zero points lack merge into the rows: (..., M, K) @
// (K, N) is one tall GEMM.
#include "ops/batch.h"

#include <algorithm>
#include <utility>

#include "core/params.h"

namespace tcgemm::ops {
namespace {

std::int64_t batch_stride(const CheckedOperand& operand, std::int64_t d, std::int64_t batch_dims) {
  const std::int64_t own = d - (batch_dims - operand.batch_dims);
  if (own < 0 || operand.view.sizes[own] == 1) return 0;
  return operand.view.strides[own];
}

// One value of scale_a serves 1 << shift elements of `inner`.
bool merge(StridedDim& inner, const StridedDim& outer, int shift = 0) {
  // The kernels hold extents and counts in 32 bits.
  if (inner.size > kLargestExtent / outer.size) return false;
  if (inner.size % (1 << shift) != 0) return false;
  const bool is_unit = inner.size == 1;
  for (int slot = 0; slot < kSlots && !is_unit; ++slot) {
    const std::int64_t step_count = slot == ScaleA ? inner.size >> shift : inner.size;
    if (outer.stride[slot] != step_count * inner.stride[slot]) return false;
  }
  if (is_unit) std::copy_n(outer.stride, int(kSlots), inner.stride);
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
  return outer.stride[B] == 0 && outer.stride[ScaleB] == 0 && outer.stride[ZeroB] == 0;
}

Matrix matrix_of(const CheckedOperand& operand, const StridedDim& rows, const StridedDim& batch,
                 Slot slot) {
  Matrix matrix;
  matrix.address = operand.view.address;
  matrix.dtype = operand.view.dtype;
  matrix.stride_row = rows.stride[slot];
  matrix.stride_col = operand.cols == 1 ? 0 : operand.stride_col;
  matrix.stride_batch = batch.size == 1 ? 0 : batch.stride[slot];
  return matrix;
}

Scale scale_of(const CheckedGemm& checked, const StridedDim& rows, const StridedDim& batch,
               Slot slot) {
  const CheckedOperand& operand = checked.operand[slot];
  Scale scale{matrix_of(operand, rows, batch, slot), operand.shift_row, operand.shift_col};
  // The rows of scale_b run along k, not along the rows of the result.
  if (slot == ScaleB) scale.values.stride_row = operand.stride_row;
  return scale;
}

}  // namespace

void collapse(const CheckedGemm& checked, double alpha, double beta, BatchedProblem& batched) {
  StridedDim rows{checked.m, {}};
  for (const Slot slot : {A, C, Bias, Residual, ScaleA, ZeroA, Out}) {
    const CheckedOperand& operand = checked.operand[slot];
    rows.stride[slot] = operand.rows == 1 ? 0 : operand.stride_row;
  }

  batched.loop_dims = 0;
  for (std::int64_t d = checked.batch_dims - 1; d >= 0; --d) {
    if (checked.batch[d] == 1) continue;
    StridedDim outer{checked.batch[d], {}};
    for (int slot = 0; slot < kSlots; ++slot)
      outer.stride[slot] = batch_stride(checked.operand[slot], d, checked.batch_dims);
    if (batched.loop_dims == 0 && shares_b(outer) &&
        merge(rows, outer, checked.operand[ScaleA].shift_row))
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
  p = Problem{};
  p.batch = batch.size;
  p.m = rows.size;
  p.n = checked.n;
  p.k = checked.k;
  p.a = matrix_of(checked.operand[A], rows, batch, A);
  p.b = matrix_of(checked.operand[B], rows, batch, B);
  p.b.stride_row = checked.operand[B].stride_row;
  p.out = matrix_of(checked.operand[Out], rows, batch, Out);
  set_unit_dim_strides(p.a, p.m, checked.operand[A].cols);
  set_unit_dim_strides(p.b, checked.operand[B].rows, p.n);
  set_unit_dim_strides(p.out, p.m, p.n);
  const auto bind_optional = [&](std::optional<Matrix>& matrix, Slot slot) {
    if (checked.operand[slot].view) matrix = matrix_of(checked.operand[slot], rows, batch, slot);
  };
  if (beta != 0) bind_optional(p.c, C);
  bind_optional(p.bias, Bias);
  bind_optional(p.residual, Residual);
  bind_optional(p.zero_a, ZeroA);
  bind_optional(p.zero_b, ZeroB);
  bind_optional(p.scale_out, ScaleOut);
  if (checked.operand[ScaleA].view) p.scale_a = scale_of(checked, rows, batch, ScaleA);
  if (checked.operand[ScaleB].view) p.scale_b = scale_of(checked, rows, batch, ScaleB);
  p.input_a = checked.input_a;
  p.input_b = checked.input_b;
  p.accumulator = checked.accumulator;
  p.promote = checked.promote;
  p.activation = checked.activation;
  p.alpha = alpha;
  p.beta = beta;
}

}  // namespace tcgemm::ops
