// Activations in the arithmetic of the special function unit.
#pragma once

#include "core/activation.h"
#include "ptx/approximate.cuh"

namespace tcgemm::tile {

inline constexpr double kLog2E = 1.44269504088896341;

// x / (1 + 2^y), within 4 ulp. Where 2^y overflows, the reciprocal is 0, which is the correct
// limit. The product is rounded by itself: see `product` in tile/epilogue.cuh.
__device__ inline float times_logistic(float x, float y) {
  return __fmul_rn(x, ptx::reciprocal(1.0f + ptx::exp2(y)));
}

// The Math (core/activation.h) of results of f32. Constants of exponents have the factor log2(e).
struct Fast {
  using Type = float;
  // A relative error of 1.2e-7 everywhere: the Chebyshev fit of W. H. Press et al., Numerical
  // Recipes, 6.2. It has a third of the instructions of erfcf, which would dominate the epilogue's
  // time.
  __device__ static float erfc(float x) {
    const float z = fabsf(x);
    const float t = __fdividef(1.0f, 1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const float tail = t * __expf(p - z * z);
    return x < 0.0f ? 2.0f - tail : tail;
  }
  __device__ static float times_logistic(float x, double factor) {
    return tile::times_logistic(x, float(kLog2E * factor) * x);
  }
  __device__ static float times_logistic(float x, double factor, double cube) {
    return tile::times_logistic(
        x, x * (float(kLog2E * factor * cube) * (x * x) + float(kLog2E * factor)));
  }
};

// x / (1 + e^(-2 u)) = x (1 + tanh(u)) / 2 for results of at most 16 bits. With tanh its error is
// at most 4e-6 |x|. The rounding of a bf16 or f16 result may add more, except where the result is
// below 0.0006 |x|.
__device__ inline float times_logistic_16bit(float x, float u) {
  if constexpr (ptx::kAccurateTanh) {
    const float half = 0.5f * x;
    return __fmaf_rn(half, ptx::tanh(u), half);
  }
  return times_logistic(x, float(-2 * kLog2E) * u);
}

// The Math of results and gradients of at most 16 bits: one special function instead of two.
struct Fast16bit {
  using Type = float;
  __device__ static float logistic(float x) {
    return ptx::reciprocal(1.0f + ptx::exp2(float(-kLog2E) * x));
  }
  __device__ static float times_logistic(float x, double factor) {
    return times_logistic_16bit(x, float(factor / -2) * x);
  }
  __device__ static float times_logistic(float x, double factor, double cube) {
    return times_logistic_16bit(x, x * (float(factor * cube / -2) * (x * x) + float(factor / -2)));
  }
  // The distribution is approximation 26.2.17 of Abramowitz and Stegun, which shares the density
  // and has an absolute error of 7.5e-8.
  __device__ static Normal<float> normal(float x) {
    const float density = 0.398942280401432678f * ptx::exp2(-0.721347520444481704f * x * x);
    const float t = ptx::reciprocal(1.0f + 0.2316419f * fabsf(x));
    float p = 1.330274429f;
    p = p * t - 1.821255978f;
    p = p * t + 1.781477937f;
    p = p * t - 0.356563782f;
    p = p * t + 0.319381530f;
    const float tail = density * t * p;
    return {density, x < 0.0f ? tail : 1.0f - tail};
  }
};

template <Activation kActivation>
__device__ inline float activate(float x) {
  return Formula<kActivation, Fast>::forward(x);
}

// The activation of a result of at most 16 bits. u of gelu is x p(x^2), which approximates
// log(Phi(x) / Phi(-x)) / 2; it changes the result by at most 4.9e-8 |x|. The coefficients are a
// weighted least-squares fit for |x| <= 5, iterated towards the minimax. The last one is positive,
// so that u has the sign of x beyond.
template <Activation kActivation>
__device__ inline float activate_16bit(float x) {
  if constexpr (kActivation == Activation::gelu) {
    const float t = x * x;
    float p = 1.756174095e-09f;
    p = p * t - 1.322634660e-07f;
    p = p * t + 3.964746156e-06f;
    p = p * t - 5.530620183e-05f;
    p = p * t - 3.259495861e-05f;
    p = p * t + 3.633308411e-02f;
    p = p * t + 7.978849411e-01f;
    return times_logistic_16bit(x, x * p);
  } else {
    return Formula<kActivation, Fast16bit>::forward(x);
  }
}

}  // namespace tcgemm::tile
