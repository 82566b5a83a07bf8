// The shapes of what multiplies and of what is subtracted, which follow the operand it belongs to.
//
//             one value    a row (column)    blocks of 1x128       blocks of 128x128
//   scale_a   any shape    (M, 1)            (M, ceil(K/128))      (ceil(M/128), ceil(K/128))
//   scale_b   of one       (1, N)            (ceil(K/128), N)      (ceil(K/128), ceil(N/128))
//   zero_a    element      (M, 1)
//   zero_b                 (1, N)
//
// Batch dimensions stand before these, and broadcast to those of the result.
#include "ops/check.h"

namespace tcgemm::ops {
namespace {

std::int64_t blocks(std::int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

bool serves_a(Slot slot) { return slot == ScaleA || slot == ZeroA; }

// (rows, columns) as a shape of scale_a, or turned round as one of scale_b.
std::string shape_of(Slot slot, std::int64_t side, std::int64_t depth) {
  return serves_a(slot) ? join("(", side, ", ", depth, ")") : join("(", depth, ", ", side, ")");
}

void check_one(Op op, const CheckedGemm& g) {
  const View& view = g.operand[ScaleOut].view;
  if (view && view.elements() != 1)
    fail(name(op), ": scale_out must have one element, but has shape ", view.shape(),
         "; pass one multiplier for the whole result.");
}

void check_batch(Op op, const CheckedGemm& g, const CheckedOperand& operand) {
  bool fits = operand.batch_dims <= g.batch_dims;
  for (std::int64_t d = 0; fits && d < operand.batch_dims; ++d) {
    const std::int64_t size = operand.view.sizes[d];
    fits = size == 1 || size == g.batch[d + g.batch_dims - operand.batch_dims];
  }
  if (fits) return;
  fail(name(op), ": the batch of ", operand.view.name, ", of shape ", operand.view.shape(),
       ", does not broadcast to that of the result, ", Shape{g.batch, g.batch_dims},
       "; each of its dimensions before the last two must be 1 or that of the result.");
}

[[noreturn, gnu::cold]] void fail_shape(Op op, const CheckedGemm& g, Slot slot,
                                        std::int64_t extent) {
  const View& view = g.operand[slot].view;
  std::string also;
  if ((slot == ScaleA || slot == ScaleB) && is_fp8(g.operand[A].view.dtype))
    also = join(", for blocks of 1x128 ", shape_of(slot, extent, blocks(g.k)),
                ", for blocks of 128x128 ", shape_of(slot, blocks(extent), blocks(g.k)));
  fail(name(op), ": ", view.name, " must have one element or shape ", shape_of(slot, extent, 1),
       also, ", but has ", view.shape(), "; reshape it.");
}

void fail_blocks(Op op, const CheckedGemm& g, Slot slot, std::int64_t extent) {
  const View& view = g.operand[slot].view;
  const View& a = g.operand[A].view;
  if (!is_fp8(a.dtype))
    fail(name(op), ": ", view.name, " of shape ", view.shape(),
         " scales blocks of 128, which is there for fp8 operands, but ", a.name, " is ",
         type_name(a.type), "; pass one value, or ", shape_of(slot, extent, 1), " of them.");
  if (!g.promote)
    fail(name(op), ": ", view.name, " of shape ", view.shape(),
         " scales blocks of 128, whose sums are added in float32, but precision is \"fast\"; ",
         "pass \"promoted\", or None.");
}

// Along each dimension: stride 0 where one value serves all, else one for 1 << shift neighbours.
void check_side(Op op, CheckedGemm& g, Slot slot) {
  CheckedOperand& operand = g.operand[slot];
  const View& view = operand.view;
  if (!view) return;
  if (view.elements() == 1) return;  // of any shape: rows, columns and batch dimensions stay 1
  bind_matrix_dims(operand, true, true);
  const std::int64_t extent = serves_a(slot) ? g.m : g.n;
  const std::int64_t side = serves_a(slot) ? operand.rows : operand.cols;
  const std::int64_t depth = serves_a(slot) ? operand.cols : operand.rows;
  const bool line = depth == 1 && (side == 1 || side == extent);
  const bool square = side != extent && side == blocks(extent) && depth == blocks(g.k);
  const bool block = square || (side == extent && depth == blocks(g.k));
  const bool scale = slot == ScaleA || slot == ScaleB;
  if (view.dims < 2 || !(line || (block && scale))) fail_shape(op, g, slot, extent);
  if (!line) fail_blocks(op, g, slot, extent);
  check_batch(op, g, operand);

  int& shift_side = serves_a(slot) ? operand.shift_row : operand.shift_col;
  int& shift_depth = serves_a(slot) ? operand.shift_col : operand.shift_row;
  if (square && side > 1) shift_side = kScaleShift;
  if (depth > 1) shift_depth = kScaleShift;
  if (operand.rows == 1) operand.stride_row = 0;
  if (operand.cols == 1) operand.stride_col = 0;
  // K = 0: no product, and nothing to multiply it with.
  if (view.elements() == 0) operand = CheckedOperand{};
}

}  // namespace

void check_scales(Op op, CheckedGemm& g) {
  for (const Slot slot : {ScaleA, ScaleB, ZeroA, ZeroB}) check_side(op, g, slot);
  check_one(op, g);
}

}  // namespace tcgemm::ops
