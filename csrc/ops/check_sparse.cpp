// The rules for sparse_a and sparse_b: what compress24 made beside the values that are a (or b).
//
//   w (N, K) --compress24--> values, metadata --tile24--> tiles
//
//   b = values.t() has K rows for the product, and fewer in memory
//
// The CPU reads metadata as they are, a GPU tiles: their number of dimensions tells them apart.
#include "core/sparse.h"
#include "ops/check.h"

namespace tcgemm::ops {
namespace {

constexpr std::uintptr_t kTilesAlignment = 16;

Slot operand_of(Slot slot) { return slot == SparseA ? A : B; }

void check_kind(Op op, const Arguments& arguments, const CheckedGemm& g, Slot slot) {
  const View& view = g.operand[operand_of(slot)].view;
  const char* const given = g.operand[slot].view.name;
  if (view.dtype == DType::f64)
    fail(name(op), ": ", given, " is given, but ", view.name,
         " is torch.float64, of which tensor cores take no sparse operands; convert both operands "
         "to torch.float32 or multiply the dense matrix.");
  if (g.input_a == DType::f32)
    fail(name(op), ": ", given, " is given, but sparse torch.float32 operands are multiplied as ",
         "tf32 alone; pass precision=\"high\", or multiply the dense matrix.");
  if (g.input_a == DType::bf16 && view.dtype == DType::f32)
    fail(name(op), ": ", given, " is given with precision \"medium\", but the values are ",
         "torch.float32; convert both operands to torch.bfloat16, or pass \"high\".");
  if (is_fp8(view.dtype) && arguments.precision && *arguments.precision != "fast")
    fail(name(op), ": ", given, " is given, but sums of sparse fp8 operands stay in the tensor ",
         "cores; pass precision=\"fast\", or None.");
  if (g.accumulator == DType::f16)
    fail(name(op), ": ", given, " is given, but sparse torch.float16 operands are accumulated in ",
         "torch.float32; leave acc_dtype away.");
}

void check_beside(Op op, const CheckedGemm& g, Slot slot) {
  const char* const given = g.operand[slot].view.name;
  for (const Slot other : {ZeroA, ZeroB, PreparedB})
    if (const View& view = g.operand[other].view)
      fail(name(op), ": ", view.name, " and ", given, " do not go together; leave ", view.name,
           " away, or multiply the dense matrix.");
  for (const Slot other : {ScaleA, ScaleB}) {
    const CheckedOperand& scale = g.operand[other];
    if (!scale.view || (other == ScaleA ? scale.cols : scale.rows) == 1) continue;
    fail(name(op), ": ", scale.view.name,
         " scales blocks along K, which a sparse operand does not ",
         "have; pass one value, or one for each row or column.");
  }
}

void check_metadata(Op op, const CheckedGemm& g, Slot slot, Target target) {
  const View& view = g.operand[slot].view;
  const CheckedOperand& operand = g.operand[operand_of(slot)];
  const std::int64_t rows = slot == SparseA ? g.m : g.n;
  const Pattern pattern = pattern_of(operand.view.dtype);
  if (operand.view.dims != 2)
    fail(name(op), ": ", view.name, " is given, which belongs to one matrix, but ",
         operand.view.name, " has shape ", operand.view.shape(),
         "; pass the values of one matrix.");
  const bool bytes = view.known && view.dtype == DType::u8;
  const std::int64_t columns = metadata_columns(g.k, pattern);
  const bool metadata =
      bytes && view.dims == 2 && view.sizes[0] == rows && view.sizes[1] == columns;
  if (metadata && target != Target::cuda) return;
  const MetadataTiles tiles{rows, g.k, bits(operand.view.dtype)};
  const bool tiled = bytes && view.dims == 1 && view.sizes[0] == tiles.bytes() &&
                     view.strides[0] == 1 && view.address % kTilesAlignment == 0;
  if (tiled && target != Target::cpu) return;
  if (target == Target::cpu)
    fail(name(op), ": ", view.name, " must be torch.uint8 of shape (", rows, ", ", columns,
         "), as compress24 makes it beside these values, but is ", type_name(view.type),
         " of shape ", view.shape(), "; pass its metadata.");
  fail(name(op), ": ", view.name, " must be contiguous torch.uint8 of shape (", tiles.bytes(),
       ",), as tile24 makes it of the metadata of these values, but is ", type_name(view.type),
       " of shape ", view.shape(), "; pass what tile24 returns.");
}

}  // namespace

std::int64_t stored_k(const CheckedGemm& g, Slot operand, std::int64_t k) {
  const CheckedOperand& sparse = g.operand[operand == A ? SparseA : SparseB];
  return sparse.view ? value_columns(k, pattern_of(g.operand[operand].view.dtype)) : k;
}

void check_one_sparse(Op op, const CheckedGemm& g) {
  if (g.operand[SparseA].view && g.operand[SparseB].view)
    fail(name(op), ": sparse_a and sparse_b are given, but tensor cores take one sparse operand; ",
         "decompress the other one.");
}

void check_sparse(Op op, const Arguments& arguments, Target target, CheckedGemm& g) {
  for (const Slot slot : {SparseA, SparseB}) {
    if (!g.operand[slot].view) continue;
    check_kind(op, arguments, g, slot);
    check_beside(op, g, slot);
    check_metadata(op, g, slot, target);
    g.promote = false;
  }
}

void bind_sparse(const CheckedGemm& g, Problem& problem) {
  if (g.k == 0) return;  // nothing is left out then
  if (const View& view = g.operand[SparseA].view)
    problem.sparse_a = SparseOperand{view.address, g.operand[A].cols};
  if (const View& view = g.operand[SparseB].view)
    problem.sparse_b = SparseOperand{view.address, g.operand[B].rows};
}

}  // namespace tcgemm::ops
