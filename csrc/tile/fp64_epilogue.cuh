// The epilogue of f64 results: scales, c, bias, activation and residual, applied in double to the
// accumulators in registers, and then the store. It is tile/epilogue.cuh with the f64 variants.
//
// The loop over units of 16 rows stays rolled, so that its code exists once. Each iteration moves
// the accumulators of the next rows to the registers of the first ones.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "tile/epilogue.cuh"
#include "tile/store.cuh"

namespace tcgemm::tile {

// activate with the precision of f64.
template <Activation kActivation>
__device__ inline double activate_f64(double x) {
  if constexpr (kActivation == Activation::relu)
    return x < 0.0 ? 0.0 : x;
  else if constexpr (kActivation == Activation::gelu)
    return 0.5 * x * erfc(x * -0.70710678118654752440);
  else if constexpr (kActivation == Activation::gelu_tanh)
    return x / (1.0 + exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
  else
    return x / (1.0 + exp(-x));
}

template <Activation kActivation, int kCount>
__device__ inline void activate_each(double (&v)[kCount]) {
  constexpr int kAtOnce = 4;
  static_assert(kCount % kAtOnce == 0);
#pragma unroll 1
  for (int i = 0; i < kCount; i += kAtOnce) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) v[j] = activate_f64<kActivation>(v[j]);
    rotate<kAtOnce>(v);
  }
}

template <int kCount>
__device__ inline void activate_f64(Activation activation, double (&v)[kCount]) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return activate_each<Activation::relu>(v);
    case Activation::gelu:
      return activate_each<Activation::gelu>(v);
    case Activation::gelu_tanh:
      return activate_each<Activation::gelu_tanh>(v);
    case Activation::silu:
      return activate_each<Activation::silu>(v);
  }
}

template <int kCount>
__device__ inline void finish_f64(const Epilogue& epilogue, const Window& window,
                                  double (&v)[kCount]) {
#pragma unroll 1
  for (int i = 0; i < kSources; ++i) {
    if (i == kResidual) activate_f64(epilogue.activation, v);
    if (epilogue.sources[i].data != nullptr)
      add_source(epilogue.sources[i], i == kC ? epilogue.beta_f64 : 1.0, window, v);
  }
}

// Stores 16 * kFragments rows of a warp, from element (row, col) of matrix `batch` on. It
// overwrites the accumulators.
template <int kFragments, int kCount>
__device__ inline void store_f64(const Epilogue& epilogue, const Extent& extent, int row, int col,
                                 int batch, double (&accumulators)[kFragments][kCount]) {
  if (col >= extent.n) return;
#pragma unroll 1
  for (int i = 0; i < kFragments && row < extent.m; ++i, row += 16) {
    double (&v)[kCount] = accumulators[0];
    const Window window = tile::window(extent, row, col, batch);
    if (epilogue.scaled) scale(epilogue, window, v);
    if (epilogue.has_terms) {
      finish_f64(epilogue, window, v);
      requantise(epilogue, window, v);
    }
    store_direct(epilogue, window, v);
#pragma unroll
    for (int fragment = 1; fragment < kFragments; ++fragment)
#pragma unroll
      for (int j = 0; j < kCount; ++j) accumulators[fragment - 1][j] = accumulators[fragment][j];
  }
}

}  // namespace tcgemm::tile
