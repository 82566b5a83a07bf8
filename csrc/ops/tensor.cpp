// Reads and creates tensors through torch's C shim.
#include "ops/tensor.h"

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>

#include "ops/torch_error.h"

namespace tcgemm::ops {
namespace {

// torch's numbers come from functions, since they may change between versions. They are read once.
struct NamedScalarType {
  std::int32_t number;
  const char* name;
};

const struct {
  NamedScalarType supported[kTensorDTypes] = {
      {aoti_torch_dtype_float16(), "torch.float16"},
      {aoti_torch_dtype_bfloat16(), "torch.bfloat16"},
      {aoti_torch_dtype_float32(), "torch.float32"},
      {aoti_torch_dtype_float64(), "torch.float64"},
      {-1, "tf32"},  // no tensor has it: float32 operands are rounded to it
      {aoti_torch_dtype_float8_e4m3fn(), "torch.float8_e4m3fn"},
      {aoti_torch_dtype_float8_e5m2(), "torch.float8_e5m2"},
      {aoti_torch_dtype_int8(), "torch.int8"},
      {aoti_torch_dtype_uint8(), "torch.uint8"},
      {aoti_torch_dtype_int32(), "torch.int32"}};
  NamedScalarType unsupported[10] = {{aoti_torch_dtype_float8_e4m3fnuz(), "torch.float8_e4m3fnuz"},
                                     {aoti_torch_dtype_float8_e5m2fnuz(), "torch.float8_e5m2fnuz"},
                                     {aoti_torch_dtype_uint16(), "torch.uint16"},
                                     {aoti_torch_dtype_uint32(), "torch.uint32"},
                                     {aoti_torch_dtype_uint64(), "torch.uint64"},
                                     {aoti_torch_dtype_int16(), "torch.int16"},
                                     {aoti_torch_dtype_int64(), "torch.int64"},
                                     {aoti_torch_dtype_bool(), "torch.bool"},
                                     {aoti_torch_dtype_complex64(), "torch.complex64"},
                                     {aoti_torch_dtype_complex128(), "torch.complex128"}};
  std::int32_t strided = aoti_torch_layout_strided();
  std::int32_t cpu = aoti_torch_device_type_cpu();
  std::int32_t cuda = aoti_torch_device_type_cuda();
  std::int32_t meta = aoti_torch_device_type_meta();
} kTorch;

// The rows of `supported` are in the order of the enumerators of DType.
static_assert(int(DType::f16) == 0 && int(DType::f64) == 3 && int(DType::e4m3) == 5 &&
              int(DType::s8) == 7 && int(DType::s32) == kTensorDTypes - 1);

void check_torch(AOTITorchError error, const char* call) {
  if (error != 0) fail_in_torch("torch's ", call);
}

const char* layout_name(std::int32_t layout) {
  if (layout == aoti_torch_layout_sparse_coo()) return "torch.sparse_coo";
  if (layout == aoti_torch_layout_sparse_csr()) return "torch.sparse_csr";
  if (layout == aoti_torch_layout_sparse_csc()) return "torch.sparse_csc";
  if (layout == aoti_torch_layout_sparse_bsr()) return "torch.sparse_bsr";
  if (layout == aoti_torch_layout_sparse_bsc()) return "torch.sparse_bsc";
  if (layout == aoti_torch_layout__mkldnn()) return "torch._mkldnn";
  return "one without strides";
}

// The storage ends before the tensor does where it was freed or shrunk after the tensor was made.
// torch checks this only when it makes a view.
void check_storage(const char* op, const View& view, std::int64_t element_bytes,
                   AtenTensorHandle handle) {
  std::int64_t last = 0, stored = 0;
  for (std::int64_t d = 0; d < view.dims; ++d) {
    if (view.sizes[d] == 0) return;
    last += view.strides[d] * (view.sizes[d] - 1);
  }
  std::int64_t offset = 0;
  check_torch(aoti_torch_get_storage_offset(handle, &offset), "get_storage_offset");
  check_torch(aoti_torch_get_storage_size(handle, &stored), "get_storage_size");
  const std::int64_t needed = (offset + last + 1) * element_bytes;
  if (needed <= stored) return;
  fail(op, ": ", view.name, " of shape ", view.shape(), " with strides ",
       Shape{view.strides, view.dims}, " needs a storage of ", needed,
       " bytes, but its storage has ", stored,
       "; untyped_storage().resize_() or set_() took its memory, as FSDP does between its uses ",
       "of a parameter: fill it again, or pass another tensor.");
}

void bind_address(const char* op, View& view, std::int64_t element_bytes,
                  const TensorHandle& tensor, bool written) {
  AtenTensorHandle handle = tensor.get();
  if (view.device_type == kTorch.meta) {
    // A meta tensor has no memory: the storage offset replaces the address, whose alignment counts.
    std::int64_t offset = 0;
    check_torch(aoti_torch_get_storage_offset(handle, &offset), "get_storage_offset");
    view.address = static_cast<std::uintptr_t>(offset * element_bytes);
    return;
  }
  check_storage(op, view, element_bytes, handle);
  const void* pointer = nullptr;
  if (written)
    pointer = data(tensor);
  else
    check_torch(torch_get_const_data_ptr(handle, &pointer), "get_const_data_ptr");
  view.address = reinterpret_cast<std::uintptr_t>(pointer);
}

// A contiguous copy on the device of `like`.
TensorHandle copy_to(const char* what, const TensorHandle& tensor, const View& view,
                     const View& like) {
  TensorHandle copy = allocate(what, view.shape(), view.scalar_type, like);
  check_torch(aoti_torch_copy_(copy.get(), tensor.get(), 0), "copy_");
  return copy;
}

}  // namespace

std::int64_t View::elements() const {
  std::int64_t count = 1;
  for (std::int64_t d = 0; d < dims; ++d) count *= sizes[d];
  return count;
}

View view_of(const char* op, const char* name, const TensorHandle& tensor, bool written) {
  View view;
  view.name = name;
  if (!tensor) return view;
  AtenTensorHandle handle = tensor.get();
  std::int32_t layout = kTorch.strided;
  check_torch(aoti_torch_get_layout(handle, &layout), "get_layout");
  if (layout != kTorch.strided)
    fail(op, ": ", name, " has the layout ", layout_name(layout),
         ", but every operand must be a dense, strided tensor; pass ", name,
         ".to_dense(). (What is 2:4 sparse is multiplied as tcgemm.compress24 makes it.)");
  check_torch(aoti_torch_get_dtype(handle, &view.scalar_type), "get_dtype");
  check_torch(aoti_torch_get_device_type(handle, &view.device_type), "get_device_type");
  check_torch(aoti_torch_get_device_index(handle, &view.device_index), "get_device_index");
  check_torch(aoti_torch_get_dim(handle, &view.dims), "get_dim");
  // A tensor with zero dimensions has no sizes, but a null pointer would mean that it is absent.
  static const std::int64_t none = 1;
  view.sizes = view.strides = &none;
  if (view.dims > kMaxDims)
    fail(op, ": ", name, " has ", view.dims, " dimensions, but at most ", kMaxDims,
         " are supported; flatten some of them.");
  if (view.dims > 0) {
    std::int64_t* values = nullptr;
    check_torch(aoti_torch_get_sizes(handle, &values), "get_sizes");
    view.sizes = values;
    check_torch(aoti_torch_get_strides(handle, &values), "get_strides");
    view.strides = values;
  }
  view.has_dtype = dtype_of(view.scalar_type, view.dtype);
  if (!view.has_dtype)
    return view;  // the checks reject it; the data of a quantised tensor must not be read
  bind_address(op, view, bytes(view.dtype), tensor, written);
  return view;
}

bool is_int64(const View& view) { return view.scalar_type == aoti_torch_dtype_int64(); }

void bind_int64(const char* op, View& view, const TensorHandle& tensor) {
  bind_address(op, view, sizeof(std::int64_t), tensor, false);
}

bool is_cpu(const View& view) { return view.device_type == kTorch.cpu; }
bool is_cuda(const View& view) { return view.device_type == kTorch.cuda; }
bool is_meta(const View& view) { return view.device_type == kTorch.meta; }

std::int32_t scalar_type_of(DType dtype) {
  return kTorch.supported[static_cast<int>(dtype)].number;
}

bool dtype_of(std::int32_t scalar_type, DType& dtype) {
  for (int i = 0; i < kTensorDTypes; ++i) {
    if (kTorch.supported[i].number != scalar_type) continue;
    dtype = static_cast<DType>(i);
    return true;
  }
  return false;
}

const char* type_name(DType dtype) {
  if (dtype == DType::s4) return "int4";
  if (dtype == DType::u4) return "uint4";
  if (dtype == DType::b1) return "binary";
  return kTorch.supported[static_cast<int>(dtype)].name;
}

std::string type_name(std::int32_t scalar_type) {
  for (const NamedScalarType& type : kTorch.supported)
    if (type.number == scalar_type) return type.name;
  for (const NamedScalarType& other : kTorch.unsupported)
    if (other.number == scalar_type) return other.name;
  return "of torch's dtype number " + std::to_string(scalar_type);
}

std::string type_name(const View& view) {
  return view.has_dtype && is_subbyte(view.dtype) ? type_name(view.dtype)
                                                  : type_name(view.scalar_type);
}

std::string device_name(const View& view) {
  if (is_cpu(view)) return "cpu";
  if (is_meta(view)) return "meta";
  std::string name = "device type " + std::to_string(view.device_type);
  if (is_cuda(view)) name = "cuda";
  if (view.device_type == aoti_torch_device_type_xpu()) name = "xpu";
  if (view.device_type == aoti_torch_device_type_mps()) name = "mps";
  return name + ":" + std::to_string(view.device_index);
}

void contiguous_strides(Shape shape, std::int64_t* strides) {
  std::int64_t stride = 1;
  for (std::int64_t d = shape.dims - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(shape.sizes[d], 1);
  }
}

bool is_contiguous(const View& view) {
  std::int64_t strides[kMaxDims];
  contiguous_strides(view.shape(), strides);
  for (std::int64_t d = 0; d < view.dims; ++d)
    if (view.sizes[d] != 1 && view.strides[d] != strides[d]) return false;
  return true;
}

TensorHandle allocate(const char* what, Shape shape, std::int32_t scalar_type, const View& like) {
  std::int64_t strides[kMaxDims];
  contiguous_strides(shape, strides);
  AtenTensorHandle handle = nullptr;
  if (aoti_torch_empty_strided(shape.dims, shape.sizes, strides, scalar_type, like.device_type,
                               like.device_index, &handle) != 0)
    fail_in_torch("the allocation of ", what, " of shape ", shape, ", ", type_name(scalar_type),
                  ", on ", device_name(like));
  return TensorHandle(handle);
}

void* data(const TensorHandle& tensor) {
  void* pointer = nullptr;
  check_torch(torch_get_mutable_data_ptr(tensor.get(), &pointer), "get_mutable_data_ptr");
  return pointer;
}

TensorHandle contiguous_copy(const char* what, const TensorHandle& tensor, const View& view) {
  return copy_to(what, tensor, view, view);
}

TensorHandle host_copy(const char* what, const TensorHandle& tensor, const View& view) {
  View host;
  host.device_type = kTorch.cpu;
  return copy_to(what, tensor, view, host);
}

TensorHandle first_bytes(const TensorHandle& tensor, std::int64_t bytes) {
  const std::int64_t stride = 1;
  AtenTensorHandle view = nullptr;
  check_torch(aoti_torch__reinterpret_tensor(tensor.get(), 1, &bytes, &stride, 0, &view),
              "_reinterpret_tensor");
  return TensorHandle(view);
}

std::uint8_t first_byte(const TensorHandle& tensor) {
  std::uint8_t byte = 0;
  check_torch(aoti_torch_item_uint8(first_bytes(tensor, 1).get(), &byte), "item");
  return byte;
}

void copy(const TensorHandle& to, const TensorHandle& from) {
  check_torch(aoti_torch_copy_(to.get(), from.get(), 0), "copy_");
}

void zero(const TensorHandle& tensor) { check_torch(aoti_torch_zero_(tensor.get()), "zero_"); }

}  // namespace tcgemm::ops
