// The order of csrc/tile/scale.cuh and csrc/tile/epilogue.cuh.
#include "emulate/epilogue.h"

#include <cmath>

namespace tcgemm::emulate {
namespace {

template <class T>
class Values {
 public:
  explicit Values(const Epilogue& epilogue) : e_(epilogue) {}

  T after(std::int64_t batch, std::int64_t row, std::int64_t col, T value) const {
    const std::int64_t at = (batch * e_.m + row) * e_.n + col;
    value = scaled(batch * e_.m + row, batch * e_.n + col, value);
    if (e_.c) value = std::fma(T(e_.beta), element(e_.c, at), value);
    if (e_.bias) value += element(e_.bias, at);
    if (e_.relu) value = value < 0 ? T(0) : value;
    if (e_.residual) value += element(e_.residual, at);
    return value;
  }

 private:
  static T element(const void* data, std::int64_t index) {
    return static_cast<const T*>(data)[index];
  }

  // alpha and the scale of a row of the kernel's result are multiplied first, with the scale of
  // the columns if that is one value.
  T scaled(std::int64_t row, std::int64_t col, T value) const {
    const float* first = e_.swap_ab ? e_.scale_b : e_.scale_a;
    const float* second = e_.swap_ab ? e_.scale_a : e_.scale_b;
    const std::int64_t of_first = e_.swap_ab ? col : row, of_second = e_.swap_ab ? row : col;
    const bool one = e_.swap_ab ? e_.one_scale_a : e_.one_scale_b;
    T factor = T(e_.alpha);
    if (first) factor *= T(first[of_first]);
    if (second && one) factor *= T(second[of_second]);
    value *= factor;
    return second && !one ? value * T(second[of_second]) : value;
  }

  const Epilogue& e_;
};

template <class T>
void apply_as(const Epilogue& epilogue) {
  const Values<T> values(epilogue);
  T* data = static_cast<T*>(epilogue.values);
  for (std::int64_t batch = 0; batch < epilogue.batch; ++batch)
    for (std::int64_t row = 0; row < epilogue.m; ++row)
      for (std::int64_t col = 0; col < epilogue.n; ++col, ++data)
        *data = values.after(batch, row, col, *data);
}

}  // namespace

void apply(const Epilogue& epilogue) {
  epilogue.is_f64 ? apply_as<double>(epilogue) : apply_as<float>(epilogue);
}

}  // namespace tcgemm::emulate
