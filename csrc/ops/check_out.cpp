// The rules for a tensor to write into: the result's shape, dtype and device, no element twice, and
// no memory that is also read.
#include "ops/check.h"
#include "ops/overlap.h"

namespace tcgemm::ops {

void check_out(Op op, CheckedGemm& g) {
  CheckedOperand& operand = g.operand[Out];
  const View& out = operand.view;
  if (out.type != type_of(g.out_dtype))
    fail(name(op), ": out is ", type_name(out.type), ", but the result is ", type_name(g.out_dtype),
         "; pass an out of that dtype, or out_dtype.");
  bool same = out.dims == g.dims;
  for (std::int64_t d = 0; same && d < g.dims; ++d) same = out.sizes[d] == g.sizes[d];
  if (!same)
    fail(name(op), ": out has shape ", out.shape(), ", but the result has shape ", g.shape(),
         "; pass an out of that shape (it is never resized).");
  bind_matrix_dims(operand, g.shows_rows, g.shows_cols);
  if (overlaps_itself(out))
    fail(name(op), ": out of shape ", out.shape(), " with strides ", Shape{out.strides, out.dims},
         " holds some element more than once; pass an out whose elements do not overlap, "
         "for example a new tensor from torch.empty.");
  if (is_meta(out)) return;  // no memory to share
  for (int slot = 0; slot < Out; ++slot) {
    const View& input = g.operand[slot].view;
    if (input && share_memory(out, input))
      fail(name(op), ": out shares memory with ", input.name,
           ", which is read while out is written; pass an out of its own, or ", input.name,
           ".clone().");
  }
}

}  // namespace tcgemm::ops
