// The checks of _sum_rows and _activation_backward, and the view of g as one batch of matrices.
#include "ops/passes/activation_backward.h"

#include <algorithm>

#include "ops/merged_dim.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kName = "tcgemm";

bool is_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32;
}

Activation activation_of(const std::string& text) {
  Activation activation;
  if (set_activation(text, activation)) return activation;
  fail(kName, ": activation is \"", text,
       "\", but there are \"relu\", \"gelu\", \"gelu_tanh\" and \"silu\"; pass one of these.");
}

DType float_dtype(const char* argument, std::int32_t number) {
  DType type = DType::f32;
  if (!dtype_of(number, type) || !is_float(type))
    fail(kName, ": ", argument, " is ", type_name(number),
         ", but torch.float16, torch.bfloat16 and torch.float32 are what the backward writes; pass "
         "one of these.");
  return type;
}

void check_operand(const View& view) {
  if (!view.known || !is_float(view.dtype))
    fail(kName, ": ", view.name, " is ", type_name(view.scalar_type),
         ", but torch.float16, torch.bfloat16 and torch.float32 are what the backward reads; "
         "convert it with .to(...).");
  if (view.dims < 1)
    fail(kName, ": ", view.name, " has no dimensions, but needs columns; reshape it to (1,).");
}

void check_like(const View& z, const View& g) {
  if (!z.same_device(g))
    fail(kName, ": z is on ", device_name(z), ", but g is on ", device_name(g),
         "; both must be on one device: move z with .to(\"", device_name(g), "\").");
  if (z.scalar_type != g.scalar_type)
    fail(kName, ": z is ", type_name(z.scalar_type), ", but g is ", type_name(g.scalar_type),
         "; convert z with .to(g.dtype).");
  if (z.dims != g.dims || !std::equal(z.sizes, z.sizes + z.dims, g.sizes))
    fail(kName, ": z has shape ", z.shape(), ", but g has shape ", g.shape(),
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

}  // namespace

ActivationBackwardArguments unbox_sum_rows(std::uint64_t* stack) {
  StackReader reader(stack);
  ActivationBackwardArguments arguments;
  arguments.g = reader.tensor();
  arguments.sum_dtype = reader.dtype();
  return arguments;
}

ActivationBackwardArguments unbox_activation_backward(std::uint64_t* stack) {
  StackReader reader(stack);
  ActivationBackwardArguments arguments;
  arguments.g = reader.tensor();
  arguments.z = reader.tensor();
  arguments.activation = reader.string();
  arguments.dtype = reader.dtype();
  arguments.sum_dtype = reader.optional_dtype();
  return arguments;
}

ActivationBackwardResults activation_backward(const ActivationBackwardArguments& arguments,
                                              Target target, ActivationBackwardBackend backend) {
  View g = view_of(kName, "g", arguments.g), z = view_of(kName, "z", arguments.z);
  if (target == Target::none) {
    refuse_device(kName, g);
    refuse_dtype(kName, g);
  }
  check_operand(g);
  ActivationBackward task;
  TensorHandle g_copy, z_copy;
  if (!bind_matrices(g, task)) {
    g_copy = contiguous_copy("a contiguous copy of g", arguments.g, g);
    g = view_of(kName, "g", g_copy);
    bind_matrices(g, task);
  }
  ActivationBackwardResults results;
  if (z) {
    check_like(z, g);
    task.activation = activation_of(arguments.activation);
    task.gz_dtype = float_dtype("dtype", arguments.dtype);
    if (!is_contiguous(z)) {
      z_copy = contiguous_copy("a contiguous copy of z", arguments.z, z);
      z = view_of(kName, "z", z_copy);
    }
    task.z = {z.address, z.dtype, task.cols, 1, task.rows * task.cols};
    results.gz = allocate("the gradient before the activation", g.shape(), arguments.dtype, g);
    task.gz = data(results.gz);
  }
  const std::int64_t sums = arguments.sum_dtype ? task.cols : 0;
  const std::int32_t sum_dtype = arguments.sum_dtype.value_or(g.scalar_type);
  task.sum_dtype = float_dtype("sum_dtype", sum_dtype);
  results.sums = allocate("the gradient of the bias", {&sums, 1}, sum_dtype, g);
  if (arguments.sum_dtype) task.sums = data(results.sums);
  if (task.cols > 0) backend(task, g);
  return results;
}

}  // namespace tcgemm::ops
