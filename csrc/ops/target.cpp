// The errors of a call that no backend computes. The dispatcher's own error lists fifty keys.
#include "ops/target.h"

#include <algorithm>

namespace tcgemm::ops {

void refuse_device(const char* op, const View& view) {
  if (!view || is_cpu(view) || is_meta(view)) return;
  if (is_cuda(view) && !TCGEMM_CUDA)
    fail(op, ": ", view.name, " is on ", device_name(view),
         ", but no CUDA kernel was built; `TCGEMM_CUDA=1 pip install --force-reinstall --no-deps "
         "<tcgemm's source folder>` builds them, in a checkout also `make build`; or move the "
         "tensors with .cpu().");
  if (!is_cuda(view))
    fail(op, ": ", view.name, " is on ", device_name(view),
         ", but products are computed on cuda and cpu; move the tensors with .to(\"cuda\") or "
         ".cpu().");
}

void refuse_dtype(const char* op, const View& view) {
  fail(op, ": ", view.name, " is ", type_name(view.scalar_type),
       ", and nothing here takes such a tensor; pass ", view.name,
       ".dequantize() if it is quantised, or a plain dense tensor.");
}

void check_backend(Target target, const char* op, std::initializer_list<View> views) {
  if (target != Target::none || std::any_of(views.begin(), views.end(), is_meta)) return;
  for (const View& view : views) refuse_device(op, view);
  for (const View& view : views)
    if (view && !view.has_dtype) refuse_dtype(op, view);
  refuse_dtype(op, *views.begin());
}

}  // namespace tcgemm::ops
