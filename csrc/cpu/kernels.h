// The inner loops of the dense product, one table of them per instruction set.
//
// A block of the result is computed from packed panels of its operands: `rows` consecutive rows of
// a (columns of b), k by k, widened to the accumulator's type:
//
//   a, m x depth:  panel 0: a(0,0) a(1,0) .. a(rows-1,0)  a(0,1) ..  a(rows-1,depth-1)
//                  panel 1: ...
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

// rows x depth elements of `dtype` at `data`, strides in elements, as panels of `width` rows. f32
// is rounded where `input` is tf32 or bf16. The last panel is filled up with zeros.
template <class T>
using Pack = void (*)(DType dtype, DType input, const void* data, std::int64_t stride_row,
                      std::int64_t stride_k, std::int64_t rows, std::int64_t depth, int width,
                      T* panels);

struct Steps {
  std::int64_t depth;
  bool first;      // start from zero, not from what `sums` holds
  bool round_f16;  // round to f16 after every 16 products and after the last
};

// sums (m x n, pitch elements from row to row) += panels of a times panels of b, in ascending k.
// The pitch has room for n rounded up to Kernels::columns.
template <class T>
using Multiply = void (*)(const Steps& steps, std::int64_t m, std::int64_t n, const T* a,
                          const T* b, T* sums, std::int64_t pitch);

template <class T>
using Load = void (*)(DType dtype, const void* data, std::int64_t stride, std::int64_t n, T* out);

template <class T>
using Store = void (*)(DType dtype, const T* values, std::int64_t n, void* data,
                       std::int64_t stride);

inline constexpr int kWidestPanel = 32;

template <class T>
struct Kernels {
  int rows;     // of a in a panel
  int columns;  // of b in a panel
  Pack<T> pack;
  Multiply<T> multiply;
  Load<T> load;    // n elements of any dtype, exactly
  Store<T> store;  // n values, each rounded once, to nearest even
};

struct KernelSet {
  Kernels<float> f32;
  Kernels<double> f64;
};

extern const KernelSet kBaselineKernels;
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;

const KernelSet& kernel_set(Isa isa);

}  // namespace tcgemm::cpu
