// torch's tensors, seen through the C shim: owned handles, and what is read of each, once a call.
//
// torch::stable::Tensor is not used: it allocates a control block for each argument, and its
// creators go through the dispatcher, whose symbols are not part of what the library may need.
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

// A tensor of more dimensions is refused; torch's own elementwise kernels stop at the same number.
inline constexpr int kMaxDims = 64;

struct View {
  const char* name = "";                  // as the caller knows the argument
  const std::int64_t* sizes = nullptr;    // null: the argument was not given
  const std::int64_t* strides = nullptr;  // in elements
  std::int64_t dims = 0;
  std::int32_t type = -1;         // torch's number of the dtype
  DType dtype = DType::f32;       // that dtype, where `known`
  bool known = false;             // a dtype that the library reads or writes
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

// Reads a tensor; an absent one gives an empty view. Refuses what is not a strided tensor, since it
// has no strides to read. `op` begins the sentence. `written`: a lazy copy is made real first.
View view_of(const char* op, const char* name, const TensorHandle& tensor, bool written = false);

bool is_cpu(const View& view);
bool is_cuda(const View& view);
bool is_meta(const View& view);

std::int32_t type_of(DType dtype);  // torch's number
bool dtype_of(std::int32_t type, DType& dtype);
std::string type_name(std::int32_t type);  // "torch.float16"
const char* type_name(DType dtype);
std::string device_name(const View& view);  // "cuda:0"

void contiguous_strides(Shape shape, std::int64_t* strides);

// A new contiguous tensor on the device of `like`. Throws a sentence when memory is short.
TensorHandle allocate(const char* what, Shape shape, std::int32_t type, const View& like);
void* data(const TensorHandle& tensor);

// The same values in a new contiguous tensor, for what no strides of a Problem can describe.
TensorHandle contiguous_copy(const char* what, const TensorHandle& tensor, const View& view);
// The first bytes of a tensor of bytes, which keep all of it alive.
TensorHandle first_bytes(const TensorHandle& tensor, std::int64_t bytes);
// The first byte; waits for the GPU where it is on one.
std::uint8_t first_byte(const TensorHandle& tensor);
// Zeroes a tensor, on the current stream where it is on a GPU.
void zero(const TensorHandle& tensor);

}  // namespace tcgemm::ops
