// Merges batch dimensions as far as every operand's strides allow.
//
//   dimensions, innermost first:   rows | batch -1 | batch -2 | ...
//   two neighbours merge when, for every operand, outer stride == inner size * inner stride
//   rows take up batch dimensions that b, with its scales and zero points, does not have:
//   (..., M, K) @ (K, N) is one tall product
#include "ops/batch.h"

#include <algorithm>
#include <utility>

#include "core/params.h"

namespace tcgemm::ops {
namespace {

std::int64_t batch_stride(const CheckedOperand& operand, std::int64_t d, std::int64_t batch_dims) {
  const std::int64_t at = d - (batch_dims - operand.batch_dims);
  if (at < 0 || operand.view.sizes[at] == 1) return 0;
  return operand.view.strides[at];
}

// `shift`: a value of scale_a serves 1 << shift of inner.
bool merge(Loop& inner, const Loop& outer, int shift = 0) {
  // Extents and counts stay within the 32 bits that the kernels give them.
  if (inner.size > kLargestExtent / outer.size) return false;
  if (inner.size % (1 << shift) != 0) return false;
  const bool one = inner.size == 1;
  for (int slot = 0; slot < kSlots && !one; ++slot) {
    const std::int64_t steps = slot == ScaleA ? inner.size >> shift : inner.size;
    if (outer.stride[slot] != steps * inner.stride[slot]) return false;
  }
  if (one) std::copy_n(outer.stride, int(kSlots), inner.stride);
  inner.size *= outer.size;
  return true;
}

// A dimension of size 1 may have any stride, and torch gives it odd ones. The stride is never used
// as a step, but alignment and leading dimension are judged by it, so it becomes the one that a
// well-aligned matrix would have: the other dimension's extent, in whole steps of 16 elements.
void neutral_strides(Matrix& matrix, std::int64_t rows, std::int64_t cols) {
  const auto pitch = [](std::int64_t size) { return (size + 15) / 16 * 16; };
  if (cols == 1) matrix.stride_col = rows == 1 || matrix.stride_row != 1 ? 1 : pitch(rows);
  if (rows == 1) matrix.stride_row = matrix.stride_col == 1 ? pitch(cols) : 1;
}

// Rows go on from matrix to matrix of a batch only where nothing on b's side changes.
bool same_b(const Loop& outer) {
  return outer.stride[B] == 0 && outer.stride[ScaleB] == 0 && outer.stride[ZeroB] == 0;
}

Matrix matrix_of(const CheckedOperand& operand, const Loop& rows, const Loop& batch, Slot slot) {
  Matrix matrix;
  matrix.address = operand.view.address;
  matrix.dtype = operand.view.dtype;
  matrix.stride_row = rows.stride[slot];
  matrix.stride_col = operand.cols == 1 ? 0 : operand.stride_col;
  matrix.stride_batch = batch.size == 1 ? 0 : batch.stride[slot];
  return matrix;
}

Scale scale_of(const CheckedGemm& g, const Loop& rows, const Loop& batch, Slot slot) {
  const CheckedOperand& operand = g.operand[slot];
  Scale scale{matrix_of(operand, rows, batch, slot), operand.shift_row, operand.shift_col};
  // Along k, and not along the rows of the result.
  if (slot == ScaleB) scale.values.stride_row = operand.stride_row;
  return scale;
}

}  // namespace

void collapse(const CheckedGemm& g, double alpha, double beta, BatchedProblem& products) {
  Loop rows{g.m, {}};
  for (const Slot slot : {A, C, Bias, Residual, ScaleA, ZeroA, Out}) {
    const CheckedOperand& operand = g.operand[slot];
    rows.stride[slot] = operand.rows == 1 ? 0 : operand.stride_row;
  }

  products.loops = 0;
  for (std::int64_t d = g.batch_dims - 1; d >= 0; --d) {
    if (g.batch[d] == 1) continue;
    Loop outer{g.batch[d], {}};
    for (int slot = 0; slot < kSlots; ++slot)
      outer.stride[slot] = batch_stride(g.operand[slot], d, g.batch_dims);
    if (products.loops == 0 && same_b(outer) && merge(rows, outer, g.operand[ScaleA].shift_row))
      continue;
    if (products.loops > 0 && merge(products.loop[products.loops - 1], outer)) continue;
    products.loop[products.loops++] = outer;
  }

  // The longest run is the problem's own batch: the fewest launches.
  Loop batch{1, {}};
  if (products.loops > 0) {
    Loop* const end = products.loop + products.loops;
    Loop* const longest = std::max_element(
        products.loop, end, [](const Loop& x, const Loop& y) { return x.size < y.size; });
    batch = *longest;
    std::move(longest + 1, end, longest);
    --products.loops;
  }

  Problem& p = products.problem;
  p = Problem{};
  p.batch = batch.size;
  p.m = rows.size;
  p.n = g.n;
  p.k = g.k;
  p.a = matrix_of(g.operand[A], rows, batch, A);
  p.b = matrix_of(g.operand[B], rows, batch, B);
  p.b.stride_row = g.operand[B].stride_row;
  p.out = matrix_of(g.operand[Out], rows, batch, Out);
  neutral_strides(p.a, p.m, g.operand[A].cols);
  neutral_strides(p.b, g.operand[B].rows, p.n);
  neutral_strides(p.out, p.m, p.n);
  const auto option = [&](std::optional<Matrix>& matrix, Slot slot) {
    if (g.operand[slot].view) matrix = matrix_of(g.operand[slot], rows, batch, slot);
  };
  if (beta != 0) option(p.c, C);
  option(p.bias, Bias);
  option(p.residual, Residual);
  option(p.zero_a, ZeroA);
  option(p.zero_b, ZeroB);
  option(p.scale_out, ScaleOut);
  if (g.operand[ScaleA].view) p.scale_a = scale_of(g, rows, batch, ScaleA);
  if (g.operand[ScaleB].view) p.scale_b = scale_of(g, rows, batch, ScaleB);
  p.input_a = g.input_a;
  p.input_b = g.input_b;
  p.accumulator = g.accumulator;
  p.promote = g.promote;
  p.activation = g.activation;
  p.alpha = alpha;
  p.beta = beta;
}

}  // namespace tcgemm::ops
