// _product_backward: the gradients of a product with at most a bias.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "ops/arguments.h"
#include "ops/merged_dim.h"
#include "ops/operators.h"
#include "ops/passes/activation_backward.h"
#include "ops/product/dense.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

// A view that is no tensor of torch's: the memory of a tensor with other sizes and strides.
struct OwnView {
  View view;
  std::int64_t sizes[kMaxDims], strides[kMaxDims];

  explicit OwnView(const View& other) : view(other) {
    view.sizes = sizes;
    view.strides = strides;
  }
  OwnView(const OwnView&) = delete;
  OwnView& operator=(const OwnView&) = delete;
};

struct Transposed : OwnView {
  explicit Transposed(const View& matrix) : OwnView(matrix) {
    std::reverse_copy(matrix.sizes, matrix.sizes + 2, sizes);
    std::reverse_copy(matrix.strides, matrix.strides + 2, strides);
  }
};

// All rows of a batch of matrices as one matrix. `copy` owns the memory if no strides describe it.
struct Rows : OwnView {
  Rows(const char* op, const TensorHandle& tensor, const View& batch) : OwnView(batch) {
    if (!bind(batch)) {
      copy = contiguous_copy("a contiguous copy of an operand", tensor, batch);
      const View contiguous = view_of(op, batch.name, copy);
      view.address = contiguous.address;
      bind(contiguous);
    }
  }

  TensorHandle copy;

 private:
  bool bind(const View& batch) {
    MergedDim rows, others;
    const std::int64_t d = batch.dims - 1;
    View lead = batch;  // without the columns
    lead.dims = d;
    const std::int64_t count = lead.elements();
    // The strides of a batch without rows may fit no matrix.
    if (count > 0 && (!merge_matrices(batch, d, rows, others) || others.size != 1)) return false;
    view.dims = 2;
    sizes[0] = count, sizes[1] = batch.sizes[d];
    strides[0] = rows.stride, strides[1] = batch.strides[d];
    return true;
  }
};

void check_dims(const char* op, const View& view, bool takes_batch) {
  if (!view || view.dims == 2 || (takes_batch && view.dims > 2)) return;
  fail(op, ": ", view.name, " must be ", takes_batch ? "at least a matrix" : "a matrix",
       ", but has shape ", view.shape(), "; reshape it to a matrix.");
}

}  // namespace

Results product_backward(const Call& call) {
  StackReader reader(call.stack);
  const TensorHandle g_tensor = reader.tensor(), a_tensor = reader.optional_tensor(),
                     b_tensor = reader.optional_tensor();
  const bool is_weight = reader.flag();
  const std::optional<std::int32_t> sum_dtype = reader.optional_dtype();
  Arguments arguments;
  arguments.alpha = reader.real();
  arguments.precision = reader.optional_string();
  arguments.batch_invariant = reader.flag();

  const char* const op = name(call.op);
  const View g = view_of(op, "g", g_tensor), a = view_of(op, "a", a_tensor),
             b = view_of(op, "b", b_tensor);
  check_backend(call.backend.target, op, {g, a, b});
  for (const View& view : {g, a}) check_dims(op, view, true);
  check_dims(op, b, false);
  const auto product_of = [&](const View& x, const View& y) {
    return multiply(call, arguments, x, y);
  };

  Results gradients;
  if (b) gradients[0] = product_of(g, is_weight ? b : Transposed(b).view);
  if (a) {
    const Rows rows_g(op, g_tensor, g), rows_a(op, a_tensor, a);
    arguments.one_slice = arguments.batch_invariant;
    gradients[1] = is_weight ? product_of(Transposed(rows_g.view).view, rows_a.view)
                             : product_of(Transposed(rows_a.view).view, rows_g.view);
  }
  if (sum_dtype) gradients[2] = sum_of_rows(call, g_tensor, *sum_dtype);
  const std::int64_t none = 0;
  for (TensorHandle& gradient : gradients)
    if (!gradient) gradient = allocate("a gradient", {&none, 1}, g.scalar_type, g);
  return gradients;
}

}  // namespace tcgemm::ops
