// The checks of `out`. It has the result's shape, dtype and device, its elements do not overlap,
// and it shares no memory with a tensor that is read.
#include "ops/check/check.h"
#include "ops/check/overlap.h"

namespace tcgemm::ops {

void check_out(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  CheckedOperand& operand = checked[Slot::out];
  const View& out = operand.view;
  if (out.scalar_type != scalar_type_of(checked.out_dtype))
    fail(name(op), ": out is ", type_name(out), ", but the result is ",
         type_name(checked.out_dtype), "; pass an out of that dtype, or out_dtype.");
  if (!checked.fits(out))
    fail(name(op), ": out has shape ", out.shape(), ", but the result has shape ", checked.shape(),
         "; pass an out of that shape (it is never resized).");
  bind_matrix_dims(operand, checked.shows_rows, checked.shows_cols);
  if (overlaps_itself(out))
    fail(name(op), ": out of shape ", out.shape(), " with strides ", Shape{out.strides, out.dims},
         " holds some element more than once; pass an out whose elements do not overlap, "
         "for example a new tensor from torch.empty.");
  if (is_meta(out)) return;  // meta tensors have no memory
  for (const Slot slot : kReadSlots) {
    if (slot == Slot::c && arguments.beta == 0) continue;  // it is not read
    const View& input = checked[slot].view;
    if (input && share_memory(out, input))
      fail(name(op), ": out shares memory with ", input.name,
           ", which is read while out is written; pass an out of its own, or ", input.name,
           ".clone().");
  }
}

}  // namespace tcgemm::ops
