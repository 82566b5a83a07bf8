// The checks of _sum_rows and _activation_backward, and the view of g as one batch of matrices.
#include "ops/passes/activation_backward.h"

#include <algorithm>
#include <utility>

#include "ops/activation.h"
#include "ops/merged_dim.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

bool is_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32;
}

DType float_dtype(const char* op, const char* argument, std::int32_t number) {
  DType type = DType::f32;
  if (!dtype_of(number, type) || !is_float(type))
    fail(op, ": ", argument, " is ", type_name(number),
         ", but torch.float16, torch.bfloat16 and torch.float32 are what the backward writes; pass "
         "one of these.");
  return type;
}

void check_operand(const char* op, const View& view) {
  if (!view.has_dtype || !is_float(view.dtype))
    fail(op, ": ", view.name, " is ", type_name(view.scalar_type),
         ", but torch.float16, torch.bfloat16 and torch.float32 are what the backward reads; "
         "convert it with .to(...).");
  if (view.dims < 1)
    fail(op, ": ", view.name, " has no dimensions, but needs columns; reshape it to (1,).");
}

void check_like(const char* op, const View& z, const View& g) {
  if (!z.same_device(g))
    fail(op, ": z is on ", device_name(z), ", but g is on ", device_name(g),
         "; both must be on one device: move z with .to(\"", device_name(g), "\").");
  if (z.scalar_type != g.scalar_type)
    fail(op, ": z is ", type_name(z.scalar_type), ", but g is ", type_name(g.scalar_type),
         "; convert z with .to(g.dtype).");
  if (z.dims != g.dims || !std::equal(z.sizes, z.sizes + z.dims, g.sizes))
    fail(op, ": z has shape ", z.shape(), ", but g has shape ", g.shape(),
         "; both need the shape of the result.");
}

// False if the columns of a row are not contiguous, or if the strides fit no batch of matrices.
bool bind_matrices(const View& g, ActivationBackward& task) {
  const std::int64_t d = g.dims - 1;
  task.cols = g.sizes[d];
  if (task.cols > 1 && g.strides[d] != 1) return false;
  MergedDim rows, batch;
  if (!merge_matrices(g, d, rows, batch)) return false;
  task.g = {g.address, g.dtype, rows.stride, 1, batch.stride};
  task.batch = batch.size;
  task.rows = rows.size;
  return true;
}

// The arguments of both operators, in the order of the schema; _sum_rows has neither z nor
// activation nor dtype.
struct ActivationBackwardArguments {
  const TensorHandle& g;
  TensorHandle z{};
  std::string activation{};
  std::int32_t dtype = -1;  // torch's number
  std::optional<std::int32_t> sum_dtype;
};

// The gradient before the activation, null for _sum_rows, and the sums.
Results run(const Call& call, const ActivationBackwardArguments& arguments) {
  const char* const op = name(call.op);
  View g = view_of(op, "g", arguments.g), z = view_of(op, "z", arguments.z);
  check_backend(call.backend.target, op, {g});
  check_operand(op, g);
  ActivationBackward task;
  TensorHandle g_copy, z_copy;
  if (!bind_matrices(g, task)) {
    g_copy = contiguous_copy("a contiguous copy of g", arguments.g, g);
    g = view_of(op, "g", g_copy);
    bind_matrices(g, task);
  }
  TensorHandle gz, sums;
  if (z) {
    check_like(op, z, g);
    task.activation = activation_of(op, arguments.activation, ".");
    task.gz_dtype = float_dtype(op, "dtype", arguments.dtype);
    if (!is_contiguous(z)) {
      z_copy = contiguous_copy("a contiguous copy of z", arguments.z, z);
      z = view_of(op, "z", z_copy);
    }
    task.z = {z.address, z.dtype, task.cols, 1, task.rows * task.cols};
    gz = allocate("the gradient before the activation", g.shape(), arguments.dtype, g);
    task.gz = data(gz);
  }
  const std::int64_t columns = arguments.sum_dtype ? task.cols : 0;
  const std::int32_t sum_dtype = arguments.sum_dtype.value_or(g.scalar_type);
  task.sum_dtype = float_dtype(op, "sum_dtype", sum_dtype);
  sums = allocate("the gradient of the bias", {&columns, 1}, sum_dtype, g);
  if (arguments.sum_dtype) task.sums = data(sums);
  if (task.cols > 0) call.backend.activation_backward(task, g);
  return {std::move(gz), std::move(sums)};
}

}  // namespace

TensorHandle sum_of_rows(const Call& call, const TensorHandle& g, std::int32_t dtype) {
  return std::move(run(call, {.g = g, .sum_dtype = dtype})[1]);
}

Results sum_rows(const Call& call) {
  StackReader reader(call.stack);
  const TensorHandle g = reader.tensor();
  return {sum_of_rows(call, g, reader.dtype())};
}

Results activation_backward(const Call& call) {
  StackReader reader(call.stack);
  const TensorHandle g = reader.tensor();
  return run(call, {g, reader.tensor(), reader.string(), reader.dtype(), reader.optional_dtype()});
}

}  // namespace tcgemm::ops
