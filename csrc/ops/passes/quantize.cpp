// The checks of quantize and quantize.scaled, and the view of x as one batch of matrices.
//
//   x (..., M, K)   tensor, row, 1x128:  rows are M and the dimensions before M that merge with it
//                   128x128:             rows are M, since a block does not cross two matrices
#include <algorithm>

#include "ops/merged_dim.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

Granularity granularity_of(const char* op, const std::string& text) {
  for (int i = 0; i < kGranularities; ++i)
    if (text == name(static_cast<Granularity>(i))) return static_cast<Granularity>(i);
  fail(op, ": granularity is \"", text,
       "\", but there are \"tensor\", \"row\", \"1x128\" and \"128x128\"; pass one of these.");
}

void check(const char* op, const View& x, std::int32_t dtype, Quantization& q) {
  if (!x.has_dtype || (x.dtype != DType::f16 && x.dtype != DType::bf16 && x.dtype != DType::f32))
    fail(op, ": x is ", type_name(x.scalar_type),
         ", but torch.float16, torch.bfloat16 and torch.float32 are what can be quantised; convert "
         "it with .to(...).");
  const bool is_dtype = dtype_of(dtype, q.dtype);
  if (!is_dtype || (!is_fp8(q.dtype) && q.dtype != DType::s8))
    fail(op, ": dtype is ", type_name(dtype),
         ", but values are torch.float8_e4m3fn, torch.float8_e5m2 or torch.int8; pass one of "
         "these.");
  const std::int64_t least = q.granularity == Granularity::block_128x128 ? 2 : 1;
  if (x.dims < least)
    fail(op, ": x has shape ", x.shape(), ", but granularity \"", name(q.granularity),
         "\" needs a dimension for each of rows and columns that it divides: at least ", least,
         "; reshape it.");
}

// False if the strides of x fit no batch of matrices.
bool bind_matrices(const View& x, Quantization& q) {
  std::int64_t d = x.dims - 1;
  const MergedDim cols{x.sizes[d], x.strides[d]};
  MergedDim rows, batch;
  const bool blocks = q.granularity == Granularity::block_128x128;
  if (blocks) {
    --d;
    rows = {x.sizes[d], x.strides[d]};
  }
  if (!merge_matrices(x, d, rows, batch, !blocks)) return false;
  q.x = {x.address, x.dtype, rows.stride, cols.size == 1 ? 1 : cols.stride, batch.stride};
  q.batch = batch.size;
  q.rows = rows.size;
  q.cols = cols.size;
  return true;
}

// Sets the shape of the scales (table in core/quantize.h). Returns its number of dimensions.
std::int64_t scale_sizes(const View& x, Granularity granularity, std::int64_t* sizes) {
  if (granularity == Granularity::tensor) return 0;
  const auto blocks = [](std::int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; };
  std::copy_n(x.sizes, x.dims, sizes);
  const std::int64_t last = x.dims - 1;
  sizes[last] = granularity == Granularity::row ? 1 : blocks(sizes[last]);
  if (granularity == Granularity::block_128x128) sizes[last - 1] = blocks(sizes[last - 1]);
  return x.dims;
}

// Checks a given scale. `copy` keeps a contiguous one, if the given one is not.
float* given_scale(const char* op, const TensorHandle& scale, const View& x,
                   Granularity granularity, Shape shape, TensorHandle& copy) {
  const View view = view_of(op, "scale", scale);
  if (!view.same_device(x))
    fail(op, ": scale is on ", device_name(view), ", but x is on ", device_name(x),
         "; move it with .to(x.device).");
  if (!view.has_dtype || view.dtype != DType::f32)
    fail(op, ": scale is ", type_name(view.scalar_type),
         ", but it must be torch.float32; convert it with .float().");
  const bool one = granularity == Granularity::tensor;
  const bool fits =
      one ? view.elements() == 1
          : view.dims == shape.dims && std::equal(view.sizes, view.sizes + view.dims, shape.sizes);
  if (!fits && one)
    fail(op, ": scale has shape ", view.shape(),
         ", but granularity \"tensor\" has one scale; pass a tensor of one element, or the "
         "granularity of this scale.");
  if (!fits)
    fail(op, ": scale has shape ", view.shape(), ", but x of shape ", x.shape(),
         " with granularity \"", name(granularity), "\" has scales of shape ", shape,
         "; pass that shape, or the granularity of this scale.");
  std::int64_t strides[kMaxDims];
  contiguous_strides(shape, strides);
  if (!one && !std::equal(strides, strides + view.dims, view.strides)) {
    copy = contiguous_copy("a contiguous copy of scale", scale, view);
    return static_cast<float*>(data(copy));
  }
  return reinterpret_cast<float*>(view.address);
}

// `has_scale`: the overload with a scale, which returns amax. The other returns the scales.
Results run(const Call& call, bool has_scale) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  const TensorHandle scale = has_scale ? reader.tensor() : TensorHandle();
  const std::int32_t dtype = reader.dtype();
  const std::string granularity = reader.string();
  View x = view_of(op, "x", tensor);
  check_backend(call.backend.target, op, {x});
  Quantization q;
  q.granularity = granularity_of(op, granularity);
  check(op, x, dtype, q);

  TensorHandle copy;
  if (!bind_matrices(x, q)) {
    copy = contiguous_copy("a contiguous copy of x", tensor, x);
    x = view_of(op, "x", copy);
    bind_matrices(x, q);
  }
  std::int64_t sizes[kMaxDims];
  const std::int64_t dims = scale_sizes(x, q.granularity, sizes);
  TensorHandle scale_copy;
  if (scale) q.scales = given_scale(op, scale, x, q.granularity, {sizes, dims}, scale_copy);
  TensorHandle values = allocate("the values", x.shape(), dtype, x);
  TensorHandle groups =
      allocate(scale ? "amax" : "the scales", {sizes, dims}, scalar_type_of(DType::f32), x);
  q.values = data(values);
  (scale ? q.amax : q.scales) = static_cast<float*>(data(groups));
  call.backend.quantize(q, x);
  return {std::move(values), std::move(groups)};
}

}  // namespace

Results quantize(const Call& call) { return run(call, false); }

Results quantize_scaled(const Call& call) { return run(call, true); }

}  // namespace tcgemm::ops
