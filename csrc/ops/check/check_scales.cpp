// The checks of the shapes of scales and zero points. They follow the shape of their operand.
#include <utility>

#include "core/integer.h"
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

// The shapes that are allowed:
//
//             one value    a row (column)    blocks of 1x128       blocks of 128x128
//   scale_a   any shape    (M, 1)            (M, ceil(K/128))      (ceil(M/128), ceil(K/128))
//   scale_b   of one       (1, N)            (ceil(K/128), N)      (ceil(K/128), ceil(N/128))
//   zero_a    element      (M, 1)
//   zero_b                 (1, N)
//
// Batch dimensions precede these dimensions, and broadcast to the dimensions of the result.

std::int64_t blocks(std::int64_t extent) { return ceil_div(extent, kScaleBlock); }

bool belongs_to_a(Slot slot) { return operand_row(slot).side == Side::a; }

// The shape of a scale with this size along M (N) and along K: K is last for a, first for b.
std::string shape_of(Slot slot, std::int64_t size_mn, std::int64_t size_k) {
  return belongs_to_a(slot) ? join("(", size_mn, ", ", size_k, ")")
                            : join("(", size_k, ", ", size_mn, ")");
}

void check_scale_out(const Operator& op, const CheckedGemm& checked) {
  const View& view = checked[Slot::scale_out].view;
  if (view && view.elements() != 1)
    fail(name(op), ": scale_out must have one element, but has shape ", view.shape(),
         "; pass one multiplier for the whole result.");
}

void check_batch(const Operator& op, const CheckedGemm& checked, const CheckedOperand& operand) {
  bool fits = operand.batch_dims <= checked.batch_dims;
  for (std::int64_t d = 0; fits && d < operand.batch_dims; ++d) {
    const std::int64_t size = operand.view.sizes[d];
    fits = size == 1 || size == checked.batch[d + checked.batch_dims - operand.batch_dims];
  }
  if (fits) return;
  fail(name(op), ": the batch of ", operand.view.name, ", of shape ", operand.view.shape(),
       ", does not broadcast to the batch of the result, ",
       Shape{checked.batch, checked.batch_dims},
       "; each of its dimensions before the last two must be 1 or as in the result.");
}

// True if the view has the shape of a transposed scale: of one value a row, or of blocks.
bool is_transposed(const View& view, std::int64_t size_mn, std::int64_t k, bool of_a) {
  if (view.dims < 2) return false;
  std::int64_t rows = view.sizes[view.dims - 1], cols = view.sizes[view.dims - 2];
  if (!of_a) std::swap(rows, cols);
  const bool vector = rows == size_mn && cols == 1;
  return vector || (cols == blocks(k) && (rows == size_mn || rows == blocks(size_mn)));
}

[[noreturn, gnu::cold]] void fail_shape(const Operator& op, const CheckedGemm& checked, Slot slot,
                                        std::int64_t extent) {
  const View& view = checked[slot].view;
  std::string block_shapes;
  if (kOperandScales.contains(slot) && is_fp8(checked[Slot::a].view.dtype))
    block_shapes =
        join(", for blocks of 1x128 ", shape_of(slot, extent, blocks(checked.k)),
             ", for blocks of 128x128 ", shape_of(slot, blocks(extent), blocks(checked.k)));
  const bool transposed = is_transposed(view, extent, checked.k, belongs_to_a(slot));
  const std::string mend = transposed ? join("pass ", view.name, view.dims == 2 ? ".t()" : ".mT")
                                      : std::string("reshape it");
  fail(name(op), ": ", view.name, " must have one element or shape ", shape_of(slot, extent, 1),
       block_shapes, ", but has ", view.shape(), "; ", mend, ".");
}

void fail_blocks(const Operator& op, const CheckedGemm& checked, Slot slot, std::int64_t extent) {
  const View& view = checked[slot].view;
  const View& a = checked[Slot::a].view;
  if (!is_fp8(a.dtype))
    fail(name(op), ": ", view.name, " of shape ", view.shape(),
         " scales blocks of 128, which is there for fp8 operands, but ", a.name, " is ",
         type_name(a), "; pass one value, or ", shape_of(slot, extent, 1), " of them.");
  if (!checked.promote)
    fail(name(op), ": ", view.name, " of shape ", view.shape(),
         " scales blocks of 128, whose sums are added in float32, but precision is \"fast\"; ",
         "pass \"promoted\", or None.");
}

// Sets the shifts: one value serves 1 << shift consecutive rows or columns. Sets stride 0 along a
// dimension that one value serves.
void check_scale(const Operator& op, CheckedGemm& checked, Slot slot) {
  CheckedOperand& operand = checked[slot];
  const View& view = operand.view;
  if (!view) return;
  if (view.elements() == 1) return;  // any shape; rows, columns and batch dimensions stay 1
  bind_matrix_dims(operand, true, true);
  const std::int64_t extent = belongs_to_a(slot) ? checked.m : checked.n;
  const std::int64_t size_mn = belongs_to_a(slot) ? operand.rows : operand.cols;
  const std::int64_t size_k = belongs_to_a(slot) ? operand.cols : operand.rows;
  const bool vector = size_k == 1 && (size_mn == 1 || size_mn == extent);
  const bool block_2d =
      size_mn != extent && size_mn == blocks(extent) && size_k == blocks(checked.k);
  const bool block = block_2d || (size_mn == extent && size_k == blocks(checked.k));
  const bool is_scale = kOperandScales.contains(slot);
  if (view.dims < 2 || !(vector || (block && is_scale))) fail_shape(op, checked, slot, extent);
  if (!vector) fail_blocks(op, checked, slot, extent);
  check_batch(op, checked, operand);

  int& shift_mn = belongs_to_a(slot) ? operand.shift_row : operand.shift_col;
  int& shift_k = belongs_to_a(slot) ? operand.shift_col : operand.shift_row;
  if (block_2d && size_mn > 1) shift_mn = kScaleShift;
  if (size_k > 1) shift_k = kScaleShift;
  if (operand.rows == 1) operand.stride_row = 0;
  if (operand.cols == 1) operand.stride_col = 0;
  // K = 0: there is no block to scale.
  if (view.elements() == 0) operand = CheckedOperand{};
}

}  // namespace

void check_scales(const Operator& op, CheckedGemm& checked) {
  for (const Slot slot : kOperandScales | kZeroPoints) check_scale(op, checked, slot);
  check_scale_out(op, checked);
}

}  // namespace tcgemm::ops
