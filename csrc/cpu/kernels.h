// The inner loops of the dense GEMM: one table of functions per instruction set.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

// The loops read panels. A panel has `panel_rows` consecutive rows of a (or `panel_columns`
// columns of b) for every k, converted to the accumulator's type:
//
//   a, m x depth:  panel 0: a(0,0) a(1,0) .. a(rows-1,0)  a(0,1) ..  a(rows-1,depth-1)
//                  panel 1: ...
//
// Packs rows x depth elements of `dtype` at `data` into panels of `width` rows. Strides are in
// elements. f32 is rounded if `input` is tf32 or bf16. The last panel is padded with zeros.
template <class T>
using Pack = void (*)(DType dtype, DType input, const void* data, std::int64_t stride_row,
                      std::int64_t stride_k, std::int64_t rows, std::int64_t depth, int width,
                      T* panels);

struct KBlock {
  std::int64_t depth;
  bool first;      // starts from zero and does not read `sums`
  bool round_f16;  // rounds to f16 after every 16 steps and after the last
};

// sums (m x n, pitch elements from row to row) += panels of a times panels of b, in ascending k.
// The pitch has room for n rounded up to Kernels::panel_columns.
template <class T>
using Multiply = void (*)(const KBlock& block, std::int64_t m, std::int64_t n, const T* a,
                          const T* b, T* sums, std::int64_t pitch);

template <class T>
using Load = void (*)(DType dtype, const void* data, std::int64_t stride, std::int64_t n, T* out);

template <class T>
using Store = void (*)(DType dtype, const T* values, std::int64_t n, void* data,
                       std::int64_t stride);

inline constexpr int kMaxPanelWidth = 32;

template <class T>
struct Kernels {
  int panel_rows;     // rows of a in a panel
  int panel_columns;  // columns of b in a panel
  Pack<T> pack;
  Multiply<T> multiply;
  Load<T> load;    // n elements of any dtype, converted exactly
  Store<T> store;  // n values, each rounded once, to nearest even
};

struct KernelSet {
  Kernels<float> f32;
  Kernels<double> f64;
};

extern const KernelSet kBaselineKernels;
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;

const KernelSet& kernel_set(CpuFeatures features);

}  // namespace tcgemm::cpu
