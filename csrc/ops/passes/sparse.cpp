// The checks of the 2:4 operators, and the tensors that they allocate.
#include <torch/csrc/stable/c/shim.h>

#include "core/params.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

// The operands of each operator, and its results:
//
//   compress24     w (M, K)                             -> values, metadata, excess (2,)
//   decompress24   values, metadata                     -> w
//   gather24       w, metadata                          -> values
//   prune24        w                                    -> w
//   tile24         metadata (M, metadata_columns(K))    -> tiles, 1-D

Pattern parse_pattern(const char* op, const std::string& text) {
  for (int i = 0; i < kPatterns; ++i)
    if (text == name(static_cast<Pattern>(i))) return static_cast<Pattern>(i);
  fail(op, ": pattern is \"", text,
       "\", but there are \"2:4\" and, for torch.float32, \"1:2\"; pass one of these.");
}

bool can_be_sparse(DType type) {
  return bits(type) <= 32 && type != DType::s32 && type != DType::tf32;
}

// The dtype of `what`, from torch's number of it.
DType check_type(const char* op, const char* what, std::int32_t scalar_type, Pattern pattern) {
  DType dtype = DType::f32;
  if (!dtype_of(scalar_type, dtype) || !can_be_sparse(dtype))
    fail(op, ": ", what, " is ", type_name(scalar_type),
         ", but torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, "
         "torch.float8_e5m2, torch.int8 and torch.uint8 are what can be sparse; convert it with "
         ".to(...).");
  if (pattern == Pattern::one_of_two && dtype != DType::f32)
    fail(op, ": pattern is \"1:2\", which is for torch.float32, but ", what, " is ",
         type_name(scalar_type), "; pass pattern=\"2:4\".");
  return dtype;
}

void check_extent(const char* op, const char* what, std::int64_t extent) {
  if (extent > kLargestExtent)
    fail(op, ": ", what, " is ", extent,
         ", but can be at most 2**31 - 1024; split the tensor with torch.split.");
}

void check_matrix(const char* op, const View& view, const char* shape) {
  if (view.dims != 2)
    fail(op, ": ", view.name, " must be a matrix ", shape, ", but has shape ", view.shape(),
         "; take one matrix at a time, or reshape it.");
  check_extent(op, "a dimension", view.sizes[0]);
  check_extent(op, "a dimension", view.sizes[1]);
}

void check_metadata(const char* op, const View& metadata) {
  if (metadata.scalar_type != scalar_type_of(DType::u8))
    fail(op, ": metadata is ", type_name(metadata.scalar_type),
         ", but positions of two bits stand in torch.uint8; pass the metadata that "
         "tcgemm.compress24 gave.");
  check_matrix(op, metadata, "(M, bytes of a row)");
}

void check_k(const char* op, std::int64_t k) {
  if (k < 0)
    fail(op, ": k is ", k,
         ", but is the number of columns of the tensor that was compressed; pass its shape[1].");
  check_extent(op, "k", k);
}

// `view` must have this number of columns, which follows from k and the pattern.
void check_columns(const char* op, const View& view, std::int64_t columns, std::int64_t k,
                   Pattern pattern) {
  if (view.sizes[1] != columns)
    fail(op, ": ", view.name, " has shape ", view.shape(), ", but k = ", k, " with pattern \"",
         name(pattern), "\" takes ", columns, " columns; pass the k and the pattern of the tensor ",
         "that was compressed.");
}

void check_same_device(const char* op, const View& metadata, const View& other) {
  if (!metadata.same_device(other))
    fail(op, ": metadata is on ", device_name(metadata), ", but ", other.name, " is on ",
         device_name(other), "; move one of them with .to(...).");
}

void check_rows(const char* op, const View& metadata, const View& other) {
  if (metadata.sizes[0] != other.sizes[0])
    fail(op, ": metadata has shape ", metadata.shape(), ", but ", other.name, " of shape ",
         other.shape(), " has ", other.sizes[0],
         " rows; pass the values and the metadata that one call of tcgemm.compress24 gave.");
}

Matrix matrix(const View& view) {
  return {view.address, view.dtype, view.strides[0], view.strides[1]};
}

TensorHandle matrix_like(const char* what, std::int64_t rows, std::int64_t columns,
                         std::int32_t scalar_type, const View& like) {
  const std::int64_t sizes[] = {rows, columns};
  return allocate(what, {sizes, 2}, scalar_type, like);
}

TensorHandle vector_like(const char* what, std::int64_t size, std::int32_t scalar_type,
                         const View& like) {
  return allocate(what, {&size, 1}, scalar_type, like);
}

// The operand w of `task`, whose pattern is set.
View bind_w(const char* op, const TensorHandle& tensor, auto& task) {
  const View w = view_of(op, "w", tensor);
  check_type(op, "w", w.scalar_type, task.pattern);
  check_matrix(op, w, "(M, K)");
  task.w = matrix(w);
  task.rows = w.sizes[0];
  task.k = w.sizes[1];
  return w;
}

}  // namespace

Results compress24(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  const std::string pattern = reader.string();
  Compression c;
  c.prune = reader.flag();
  check_backend(call.backend.target, op, {view_of(op, "w", tensor)});
  c.pattern = parse_pattern(op, pattern);
  const View w = bind_w(op, tensor, c);
  Results results{
      matrix_like("the values", c.rows, value_columns(c.k, c.pattern), w.scalar_type, w),
      matrix_like("the metadata", c.rows, metadata_columns(c.k, c.pattern),
                  scalar_type_of(DType::u8), w),
      vector_like("the excess", 2, aoti_torch_dtype_int64(), w)};
  c.values = data(results[0]);
  c.metadata = static_cast<std::uint8_t*>(data(results[1]));
  c.excess = static_cast<std::int64_t*>(data(results[2]));
  call.backend.compress(c, w);
  return results;
}

Results decompress24(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle values_tensor = reader.tensor();
  const TensorHandle metadata_tensor = reader.tensor();
  Decompression d;
  d.k = reader.integer();
  const std::string pattern = reader.string();
  const View values = view_of(op, "values", values_tensor);
  const View metadata = view_of(op, "metadata", metadata_tensor);
  check_backend(call.backend.target, op, {values, metadata});
  d.pattern = parse_pattern(op, pattern);
  check_same_device(op, metadata, values);
  check_type(op, "values", values.scalar_type, d.pattern);
  check_matrix(op, values, "(M, kept ones of a row)");
  check_metadata(op, metadata);
  check_k(op, d.k);
  check_columns(op, values, value_columns(d.k, d.pattern), d.k, d.pattern);
  check_columns(op, metadata, metadata_columns(d.k, d.pattern), d.k, d.pattern);
  check_rows(op, metadata, values);
  d.values = matrix(values);
  d.metadata = matrix(metadata);
  d.rows = values.sizes[0];
  Results results{matrix_like("the result", d.rows, d.k, values.scalar_type, values)};
  d.w = data(results[0]);
  call.backend.decompress(d, values);
  return results;
}

Results gather24(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  const TensorHandle metadata_tensor = reader.tensor();
  const std::string pattern = reader.string();
  const View metadata = view_of(op, "metadata", metadata_tensor);
  check_backend(call.backend.target, op, {view_of(op, "w", tensor), metadata});
  Gathering g;
  g.pattern = parse_pattern(op, pattern);
  const View w = bind_w(op, tensor, g);
  check_same_device(op, metadata, w);
  check_metadata(op, metadata);
  check_columns(op, metadata, metadata_columns(g.k, g.pattern), g.k, g.pattern);
  check_rows(op, metadata, w);
  g.metadata = matrix(metadata);
  Results results{
      matrix_like("the values", g.rows, value_columns(g.k, g.pattern), w.scalar_type, w)};
  g.values = data(results[0]);
  call.backend.gather(g, w);
  return results;
}

Results prune24(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  const std::string pattern = reader.string();
  Pruning p;
  p.transposable = reader.flag();
  check_backend(call.backend.target, op, {view_of(op, "w", tensor)});
  p.pattern = parse_pattern(op, pattern);
  if (p.transposable && p.pattern != Pattern::two_of_four)
    fail(op, ": transposable pruning is of \"2:4\", but pattern is \"", name(p.pattern),
         "\"; pass pattern=\"2:4\", or prune without transposable.");
  const View w = bind_w(op, tensor, p);
  Results results{matrix_like("the result", p.rows, p.k, w.scalar_type, w)};
  p.pruned = data(results[0]);
  call.backend.prune(p, w);
  return results;
}

Results tile24(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  MetadataTiling t;
  t.k = reader.integer();
  const std::string pattern = reader.string();
  const std::int32_t scalar_type = reader.dtype();
  const View metadata = view_of(op, "metadata", tensor);
  check_backend(call.backend.target, op, {metadata});
  t.pattern = parse_pattern(op, pattern);
  const DType dtype = check_type(op, "dtype", scalar_type, t.pattern);
  if (t.pattern != pattern_of(dtype))
    fail(op, ": ", type_name(dtype),
         " that is 2:4 cannot be multiplied as tf32, which takes 1:2; convert the tensor to "
         "torch.bfloat16, or prune it with pattern=\"1:2\".");
  check_metadata(op, metadata);
  check_k(op, t.k);
  check_columns(op, metadata, metadata_columns(t.k, t.pattern), t.k, t.pattern);
  t.metadata = matrix(metadata);
  t.rows = metadata.sizes[0];
  t.bits = bits(dtype);
  const std::int64_t tile_bytes = MetadataTiles{t.rows, t.k, t.bits}.bytes();
  Results results{vector_like("the tiles", tile_bytes, scalar_type_of(DType::u8), metadata)};
  t.tiles = static_cast<std::uint32_t*>(data(results[0]));
  call.backend.tile(t, metadata);
  return results;
}

}  // namespace tcgemm::ops
