// The checks of sparse_a and sparse_b: the 2:4 metadata of operand a or b, whose tensor has the
// values that compress24 keeps.
#include "core/sparse.h"
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

constexpr std::uintptr_t kTilesAlignment = 16;

// The tensors of a sparse b = w.t():
//
//   w (N, K) --compress24--> values, metadata --tile24--> tiles
//
//   b = values.t(): the GEMM sees K rows, and value_columns(K) rows are stored
//
// The CPU reads the 2-D metadata of compress24, a GPU the 1-D tiles of tile24.
Slot operand_of(Slot slot) { return slot == Slot::sparse_a ? Slot::a : Slot::b; }

void check_sparse_types(const Operator& op, const Arguments& arguments, const CheckedGemm& checked,
                        Slot slot) {
  const View& view = checked[operand_of(slot)].view;
  const char* const argument = checked[slot].view.name;
  if (view.dtype == DType::f64)
    fail(name(op), ": ", argument, " is given, but ", view.name,
         " is torch.float64, of which tensor cores take no sparse operands; convert both operands "
         "to torch.float32 or multiply the dense matrix.");
  if (checked.input_a == DType::f32)
    fail(name(op), ": ", argument,
         " is given, but sparse torch.float32 operands are multiplied as ",
         "tf32 alone; pass precision=\"high\", or multiply the dense matrix.");
  if (checked.input_a == DType::bf16 && view.dtype == DType::f32)
    fail(name(op), ": ", argument, " is given with precision \"medium\", but the values are ",
         "torch.float32; convert both operands to torch.bfloat16, or pass \"high\".");
  if (is_fp8(view.dtype) && arguments.precision && *arguments.precision != "fast")
    fail(name(op), ": ", argument, " is given, but sums of sparse fp8 operands stay in the tensor ",
         "cores; pass precision=\"fast\", or None.");
  if (checked.accumulator == DType::f16)
    fail(name(op), ": ", argument,
         " is given, but sparse torch.float16 operands are accumulated in ",
         "torch.float32; leave acc_dtype out.");
}

void check_exclusive(const Operator& op, const CheckedGemm& checked, Slot slot) {
  const char* const argument = checked[slot].view.name;
  for (const Slot slot_beside : {Slot::zero_a, Slot::zero_b, Slot::terms_b})
    if (const View& view = checked[slot_beside].view)
      fail(name(op), ": ", view.name, " and ", argument, " do not go together; leave ", view.name,
           " out, or multiply the dense matrix.");
  for (const Slot slot_beside : {Slot::scale_a, Slot::scale_b}) {
    const CheckedOperand& scale = checked[slot_beside];
    if (!scale.view || (slot_beside == Slot::scale_a ? scale.cols : scale.rows) == 1) continue;
    fail(name(op), ": ", scale.view.name,
         " scales blocks along K, which a sparse operand does not ",
         "have; pass one value, or one for each row or column.");
  }
}

void check_metadata(const Operator& op, const CheckedGemm& checked, Slot slot, Target target) {
  const View& view = checked[slot].view;
  const CheckedOperand& operand = checked[operand_of(slot)];
  const std::int64_t rows = slot == Slot::sparse_a ? checked.m : checked.n;
  const Pattern pattern = pattern_of(operand.view.dtype);
  if (operand.view.dims != 2)
    fail(name(op), ": ", view.name, " is given, which belongs to one matrix, but ",
         operand.view.name, " has shape ", operand.view.shape(),
         "; pass the values of one matrix.");
  const bool is_u8 = view.has_dtype && view.dtype == DType::u8;
  const std::int64_t columns = metadata_columns(checked.k, pattern);
  const bool metadata =
      is_u8 && view.dims == 2 && view.sizes[0] == rows && view.sizes[1] == columns;
  if (metadata && target != Target::cuda) return;
  const MetadataTiles tiles{rows, checked.k, bits(operand.view.dtype)};
  const bool tiled = is_u8 && view.dims == 1 && view.sizes[0] == tiles.bytes() &&
                     view.strides[0] == 1 && view.address % kTilesAlignment == 0;
  if (tiled && target != Target::cpu) return;
  if (target == Target::cpu || target == Target::none)
    fail(name(op), ": ", view.name, " must be torch.uint8 of shape (", rows, ", ", columns,
         "), as compress24 makes it beside these values, but is ", type_name(view), " of shape ",
         view.shape(), "; pass its metadata.");
  fail(name(op), ": ", view.name, " must be contiguous torch.uint8 of shape (", tiles.bytes(),
       ",), as tile24 makes it of the metadata of these values, but is ", type_name(view),
       " of shape ", view.shape(), "; pass what tile24 returns.");
}

}  // namespace

std::int64_t stored_k(const CheckedGemm& checked, Slot operand, std::int64_t k) {
  const CheckedOperand& sparse = checked[operand == Slot::a ? Slot::sparse_a : Slot::sparse_b];
  return sparse.view ? value_columns(k, pattern_of(checked[operand].view.dtype)) : k;
}

void check_single_sparse(const Operator& op, const CheckedGemm& checked) {
  if (checked[Slot::sparse_a].view && checked[Slot::sparse_b].view)
    fail(name(op), ": sparse_a and sparse_b are given, but tensor cores take one sparse operand; ",
         "decompress the other one.");
}

void check_sparse(const Operator& op, const Arguments& arguments, Target target,
                  CheckedGemm& checked) {
  for (const Slot slot : {Slot::sparse_a, Slot::sparse_b}) {
    if (!checked[slot].view) continue;
    check_sparse_types(op, arguments, checked, slot);
    check_exclusive(op, checked, slot);
    check_metadata(op, checked, slot, target);
    checked.promote = false;
  }
}

void bind_sparse(const CheckedGemm& checked, Problem& problem) {
  if (checked.k == 0) return;  // there is no group
  if (const View& view = checked[Slot::sparse_a].view) {
    problem.set(Slot::sparse_a, Matrix{view.address, DType::u8});
    problem.sparse_k = checked[Slot::a].cols;
  }
  if (const View& view = checked[Slot::sparse_b].view) {
    problem.set(Slot::sparse_b, Matrix{view.address, DType::u8});
    problem.sparse_k = checked[Slot::b].rows;
  }
}

}  // namespace tcgemm::ops
