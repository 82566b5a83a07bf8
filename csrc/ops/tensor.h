// torch's tensors through the C shim: owned handles, and a view of the metadata of each, which is
// read once a call.
//
// torch::stable::Tensor is not used. It allocates a control block for each argument, and the
// functions that create it go through the dispatcher, whose symbols this library does not link.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "ops/error.h"

namespace tcgemm::ops {

struct DeleteTensor {
  void operator()(AtenTensorHandle handle) const { aoti_torch_delete_tensor_object(handle); }
};
using TensorHandle = std::unique_ptr<AtenTensorOpaque, DeleteTensor>;

// The most dimensions of a tensor. torch's elementwise kernels have the same limit.
inline constexpr int kMaxDims = 64;

struct View {
  const char* name = "";                  // of the argument, in errors
  const std::int64_t* sizes = nullptr;    // null: the argument was not given
  const std::int64_t* strides = nullptr;  // in elements
  std::int64_t dims = 0;
  std::int32_t scalar_type = -1;  // torch's number of the dtype
  DType dtype = DType::f32;       // the same dtype, valid if `has_dtype`
  bool has_dtype = false;         // the library reads or writes this dtype
  std::int32_t device_type = -1;  // torch's number of the device type
  std::int32_t device_index = -1;
  std::uintptr_t address = 0;

  explicit operator bool() const { return sizes != nullptr; }
  Shape shape() const { return {sizes, dims}; }
  std::int64_t elements() const;
  bool same_device(const View& other) const {
    return device_type == other.device_type && device_index == other.device_index;
  }
};

// The view of a tensor; an absent tensor gives an empty view. Throws if the layout is not strided.
// `op` is the start of the error. `written`: a lazy clone is materialized first.
View view_of(const char* op, const char* name, const TensorHandle& tensor, bool written = false);

// True of a tensor of int64, which is in no product; bind_int64 sets its address.
bool is_int64(const View& view);
void bind_int64(const char* op, View& view, const TensorHandle& tensor);

bool is_cpu(const View& view);
bool is_cuda(const View& view);
bool is_meta(const View& view);

std::int32_t scalar_type_of(DType dtype);  // torch's number of the dtype
bool dtype_of(std::int32_t scalar_type, DType& dtype);
std::string type_name(std::int32_t scalar_type);  // "torch.float16"
const char* type_name(DType dtype);
std::string type_name(const View& view);    // of its elements: "int4" where two share a byte
std::string device_name(const View& view);  // "cuda:0"

void contiguous_strides(Shape shape, std::int64_t* strides);
bool is_contiguous(const View& view);

// A new contiguous tensor on the device of `like`. Throws if torch has no memory for it.
TensorHandle allocate(const char* what, Shape shape, std::int32_t scalar_type, const View& like);
void* data(const TensorHandle& tensor);

// The same values in a new contiguous tensor, for a view that no strides of a Problem describe.
TensorHandle contiguous_copy(const char* what, const TensorHandle& tensor, const View& view);
// The same in the memory of the CPU. Synchronizes with the GPU that the tensor is on.
TensorHandle host_copy(const char* what, const TensorHandle& tensor, const View& view);
// A view of the first bytes of a u8 tensor. It keeps the whole storage alive.
TensorHandle first_bytes(const TensorHandle& tensor, std::int64_t bytes);
// The first byte of a u8 tensor. Synchronizes with the GPU that the tensor is on.
std::uint8_t first_byte(const TensorHandle& tensor);
// Copies the values of a tensor of the same shape and dtype, on the current stream.
void copy(const TensorHandle& to, const TensorHandle& from);
// Fills a tensor with zeros, on the current stream if it is on a GPU.
void zero(const TensorHandle& tensor);

}  // namespace tcgemm::ops
