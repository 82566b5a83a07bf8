// The activations: the name of each, its formula and the formula of its gradient. A formula is
// written over Math, the functions that a kernel has: Exact here, tile/activation.cuh has others.
#pragma once

#include <cmath>
#include <cstdint>

namespace tcgemm {

enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu, end };

inline constexpr int kActivations = static_cast<int>(Activation::end);

// The density phi and the distribution Phi of the normal distribution.
template <class T>
struct Normal {
  T density, distribution;
};

// The Math of the functions of <cmath>: the CPU, results of f64, and gradients of f32.
template <class T>
struct Exact {
  using Type = T;
  static constexpr T erfc(T x) { return std::erfc(x); }
  // 1 / (1 + e^-x)
  static constexpr T logistic(T x) { return T(1) / (T(1) + std::exp(-x)); }
  // x / (1 + e^(factor x))
  static constexpr T times_logistic(T x, double factor) {
    return x / (T(1) + std::exp(T(factor) * x));
  }
  // x / (1 + e^(factor (x + cube x^3)))
  static constexpr T times_logistic(T x, double factor, double cube) {
    return x / (T(1) + std::exp(T(factor) * (x + T(cube) * x * x * x)));
  }
  static constexpr Normal<T> normal(T x) {
    return {T(0.398942280401432678) * std::exp(T(-0.5) * x * x),
            T(0.5) * std::erfc(x * T(-0.70710678118654752440))};
  }
};

// A row of the table: kName, forward(x), and backward(g, z), which is g times the derivative at z.
// An enumerator without a row does not compile: with_activation visits all. kTranscendental: it
// needs exp or erf, so it takes several instructions and has no form for s32.
//
// Comparisons propagate NaN, as torch's activations do, and gradients of Inf and NaN are
// equal to torch's. No formula cancels: erfc(-u) stands for 1 + erf(u), and the logistic function
// of 2 u for (1 + tanh(u)) / 2.
template <Activation kActivation, class Math>
struct Formula;

template <class Math>
struct Formula<Activation::none, Math> {
  using T = typename Math::Type;
  static constexpr const char* kName = "none";
  static constexpr bool kTranscendental = false;
  static constexpr T forward(T x) { return x; }
  static constexpr T backward(T g, T) { return g; }
};

template <class Math>
struct Formula<Activation::relu, Math> {
  using T = typename Math::Type;
  static constexpr const char* kName = "relu";
  static constexpr bool kTranscendental = false;
  static constexpr T forward(T x) { return x < T(0) ? T(0) : x; }
  static constexpr T backward(T g, T z) { return z <= T(0) ? T(0) : g; }
};

template <class Math>
struct Formula<Activation::gelu, Math> {
  using T = typename Math::Type;
  static constexpr const char* kName = "gelu";
  static constexpr bool kTranscendental = true;
  static constexpr T forward(T x) {
    return T(0.5) * x * Math::erfc(x * T(-0.70710678118654752440));
  }
  static constexpr T backward(T g, T z) {
    const auto [density, distribution] = Math::normal(z);
    return g * (distribution + z * density);
  }
};

template <class Math>
struct Formula<Activation::gelu_tanh, Math> {
  using T = typename Math::Type;
  static constexpr const char* kName = "gelu_tanh";
  static constexpr bool kTranscendental = true;
  static constexpr double kFactor = 1.59576912160573071176;  // 2 sqrt(2 / pi)
  static constexpr double kCube = 0.044715;
  static constexpr T forward(T x) { return Math::times_logistic(x, -kFactor, kCube); }
  static constexpr T backward(T g, T z) {
    const T u = z * (T(kFactor * kCube) * (z * z) + T(kFactor));
    const T s = Math::logistic(u);
    const T u_derivative = T(3 * kFactor * kCube) * (z * z) + T(kFactor);
    return g * (s + z * (s * (T(1) - s)) * u_derivative);
  }
};

template <class Math>
struct Formula<Activation::silu, Math> {
  using T = typename Math::Type;
  static constexpr const char* kName = "silu";
  static constexpr bool kTranscendental = true;
  static constexpr T forward(T x) { return Math::times_logistic(x, -1.0); }
  static constexpr T backward(T g, T z) {
    const T s = Math::logistic(z);
    return g * (s * (T(1) + z * (T(1) - s)));
  }
};

// Returns use.operator()<kActivation>() for the activation.
template <class Use>
constexpr auto with_activation(Activation activation, const Use& use) {
  switch (activation) {
    case Activation::relu: return use.template operator()<Activation::relu>();
    case Activation::gelu: return use.template operator()<Activation::gelu>();
    case Activation::gelu_tanh: return use.template operator()<Activation::gelu_tanh>();
    case Activation::silu: return use.template operator()<Activation::silu>();
    case Activation::none:
    case Activation::end: break;
  }
  return use.template operator()<Activation::none>();
}

constexpr bool visits_all() {
  for (int i = 0; i < kActivations; ++i) {
    const auto number = [&]<Activation kActivation>() { return static_cast<int>(kActivation); };
    if (with_activation(Activation(i), number) != i) return false;
  }
  return true;
}
static_assert(visits_all(), "with_activation lacks the case of an activation");

constexpr const char* name(Activation activation) {
  return with_activation(activation, [&]<Activation kActivation>() {
    return Formula<kActivation, Exact<float>>::kName;
  });
}

constexpr bool is_transcendental(Activation activation) {
  return with_activation(activation, [&]<Activation kActivation>() {
    return Formula<kActivation, Exact<float>>::kTranscendental;
  });
}

}  // namespace tcgemm
