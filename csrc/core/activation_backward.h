// Arguments of the backward of an activation and of a bias.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace tcgemm {

// With out = activation(z) and z = product + bias:
//
//   gz   = g * activation'(z)       the gradient of z
//   sums = the sum of gz over the rows of all matrices, the gradient of the bias
//
// The arithmetic is in f32, where gz is rounded once. `sums` adds gz before it is rounded, in
// an order that the shape and the device decide. relu has the derivative 0 at z <= 0 and 1
// elsewhere, also where z is NaN.
struct ActivationBackward {
  Matrix g;  // f16, bf16 or f32; the columns of a row are contiguous
  Matrix z;  // of g's dtype, likewise; without an activation there is none
  Activation activation = Activation::none;
  std::int64_t batch = 1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  void* gz = nullptr;  // batch x rows x cols, contiguous; without an activation it is g itself
  DType gz_dtype = DType::f32;
  void* sums = nullptr;  // cols; nullptr: they are not needed
  DType sum_dtype = DType::f32;
};

}  // namespace tcgemm
