// The chain of instructions of each element of the result.
#include "emulate/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "emulate/block.h"

namespace tcgemm::emulate {
namespace {

// Element `index` of an array of 8, 16 or 32 bits.
std::uint32_t word(const void* data, std::int64_t index, int bits) {
  if (bits == 8) return static_cast<const std::uint8_t*>(data)[index];
  if (bits == 16) return static_cast<const std::uint16_t*>(data)[index];
  return static_cast<const std::uint32_t*>(data)[index];
}

// At most so many elements of b are decoded at a time: 50 MB.
constexpr std::int64_t kDecoded = std::int64_t{1} << 22;

// `length` elements from `first` on.
std::vector<Number> decode_all(const Mma& mma, const void* data, std::int64_t first,
                               std::int64_t length, DType type) {
  std::vector<Number> numbers(static_cast<std::size_t>(length));
  const bool widens = mma.arithmetic.method == Method::two_halves;
  for (std::int64_t i = 0; i < length; ++i) {
    const Number number = decode(word(data, first + i, addressable_bits(type)), format(type));
    numbers[std::size_t(i)] = widens ? widen(number, format(type).fraction_bits) : number;
  }
  return numbers;
}

// The FP8 instruction that ptxas makes of two FP16 ones: the products with k % 4 of 0 and 1, then
// those with 2 and 3, without the accumulator, which is added last.
std::uint32_t two_halves(const Block& block, std::uint32_t c, const Number* a, const Number* b,
                         int count) {
  std::vector<Number> half_a, half_b;
  std::uint32_t sum = 0;
  for (const int half : {0, 2}) {
    half_a.clear();
    half_b.clear();
    for (int i = 0; i < count; ++i) {
      if ((i & 2) != half) continue;
      half_a.push_back(a[i]);
      half_b.push_back(b[i]);
    }
    sum = block.add(sum, half_a.data(), half_b.data(), count / 2);
  }
  const bool is_f16 = block.arithmetic.rounding == Rounding::nearest_f16;
  return is_f16 ? add_f16(c, sum) : add_f32(c, sum);
}

class Floats {
 public:
  explicit Floats(const Mma& mma)
      : mma_(mma), block_(mma.arithmetic, mma.input_a, mma.input_b, mma.accumulator) {}

  // The columns first_col .. last_col - 1 of a row; b has the elements of these columns.
  void row(std::int64_t batch, std::int64_t row, std::int64_t first_col, std::int64_t last_col,
           const std::vector<Number>& b) const {
    const std::int64_t index = batch * mma_.m + row;
    const std::vector<Number> a = decode_all(mma_, mma_.a, index * mma_.k, mma_.k, mma_.input_a);
    std::vector<Number> gathered(a.size());
    const int width = bits(mma_.accumulator);
    for (std::int64_t col = first_col; col < last_col; ++col) {
      const Number* column = b.data() + (col - first_col) * mma_.k_b;
      if (mma_.columns) {
        for (std::int64_t i = 0; i < mma_.k; ++i)
          gathered[std::size_t(i)] = column[mma_.columns[index * mma_.k + i]];
        column = gathered.data();
      }
      const std::int64_t at = index * mma_.n + col;
      const std::uint32_t sum =
          mma_.promoted ? promoted(index, batch * mma_.n + col, a.data(), column)
                        : chain(mma_.c ? word(mma_.c, at, width) : 0, a.data(), column, mma_.k);
      std::memcpy(static_cast<char*>(mma_.d) + at * width / 8, &sum, std::size_t(width / 8));
    }
  }

 private:
  // The FP32 sum of row `row` of all batches and column `col` of all batches.
  std::uint32_t promoted(std::int64_t row, std::int64_t col, const Number* a,
                         const Number* b) const {
    const std::int64_t chains = (mma_.k + mma_.promoted - 1) / mma_.promoted;
    float total = 0;
    for (std::int64_t i = 0; i < chains; ++i) {
      const std::int64_t first = i * mma_.promoted;
      const std::int64_t length = std::min(mma_.promoted, mma_.k - first);
      const auto sum = std::bit_cast<float>(chain(0, a + first, b + first, length));
      const float factor_a = mma_.factors_a ? mma_.factors_a[row * chains + i] : 1.0f;
      const float factor_b = mma_.factors_b ? mma_.factors_b[col * chains + i] : 1.0f;
      total = std::fma(sum, factor_a * factor_b, total);
    }
    return std::isnan(total) ? kNanF32 : std::bit_cast<std::uint32_t>(total);
  }

  std::uint32_t chain(std::uint32_t sum, const Number* a, const Number* b,
                      std::int64_t length) const {
    for (std::int64_t first = 0; first < length; first += mma_.step) {
      if (mma_.arithmetic.method == Method::two_halves) {
        sum = two_halves(block_, sum, a + first, b + first, mma_.step);
        continue;
      }
      for (int i = 0; i < mma_.step; i += mma_.arithmetic.products)
        sum = block_.add(sum, a + first + i, b + first + i,
                         std::min(mma_.arithmetic.products, mma_.step - i));
    }
    return sum;
  }

  const Mma& mma_;
  Block block_;
};

// a and b as f64; correctly rounded FMAs add them in ascending k.
void fma_row(const Mma& mma, std::int64_t batch, std::int64_t row) {
  const std::int64_t index = batch * mma.m + row;
  const double* a = static_cast<const double*>(mma.a) + index * mma.k;
  for (std::int64_t col = 0; col < mma.n; ++col) {
    const double* b = static_cast<const double*>(mma.b) + (batch * mma.n + col) * mma.k_b;
    const std::int64_t at = index * mma.n + col;
    double sum = mma.c ? static_cast<const double*>(mma.c)[at] : 0.0;
    for (std::int64_t i = 0; i < mma.k; ++i) sum = std::fma(a[i], b[i], sum);
    static_cast<double*>(mma.d)[at] = sum;
  }
}

// Each element of 8, 4 and 1 bits has a byte: addressable_bits.
int integer(const void* data, std::int64_t index, DType type) {
  return type == DType::s8 || type == DType::s4 ? static_cast<const std::int8_t*>(data)[index]
                                                : static_cast<const std::uint8_t*>(data)[index];
}

void integer_row(const Mma& mma, std::int64_t batch, std::int64_t row) {
  const bool differ = mma.arithmetic.method == Method::xor_popc;
  const std::int64_t index = batch * mma.m + row;
  for (std::int64_t col = 0; col < mma.n; ++col) {
    const std::int64_t at = index * mma.n + col, base = (batch * mma.n + col) * mma.k_b;
    std::int64_t sum = mma.c ? static_cast<const std::int32_t*>(mma.c)[at] : 0;
    for (std::int64_t i = 0; i < mma.k; ++i) {
      const std::int64_t k = mma.columns ? mma.columns[index * mma.k + i] : i;
      const int x = integer(mma.a, index * mma.k + i, mma.input_a);
      const int y = integer(mma.b, base + k, mma.input_b);
      sum += differ ? x ^ y : x * y;
      if ((i + 1) % mma.step != 0) continue;
      sum = mma.saturates ? std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX)
                          : std::int32_t(std::uint32_t(sum));
    }
    static_cast<std::int32_t*>(mma.d)[at] = std::int32_t(sum);
  }
}

// Calls work(i) for i = 0 .. count - 1, in several threads. An exception is thrown at the end.
template <class Work>
void for_each(std::int64_t count, std::int64_t threads, const Work& work) {
  threads = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
  std::vector<std::thread> others;
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(threads));
  const auto part = [&](std::int64_t index) {
    try {
      for (std::int64_t i = index; i < count; i += threads) work(i);
    } catch (...) {
      thrown[std::size_t(index)] = std::current_exception();
    }
  };
  for (std::int64_t index = 1; index < threads; ++index) others.emplace_back(part, index);
  part(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& exception : thrown)
    if (exception) std::rethrow_exception(exception);
}

void multiply_floats(const Mma& mma, std::int64_t batch) {
  const Floats floats(mma);
  const std::int64_t columns =
      std::max<std::int64_t>(kDecoded / std::max(mma.k_b, std::int64_t{1}), 1);
  for (std::int64_t col = 0; col < mma.n; col += columns) {
    const std::int64_t last = std::min(col + columns, mma.n);
    const std::vector<Number> b = decode_all(mma, mma.b, (batch * mma.n + col) * mma.k_b,
                                             (last - col) * mma.k_b, mma.input_b);
    for_each(mma.m, mma.threads, [&](std::int64_t row) { floats.row(batch, row, col, last, b); });
  }
}

void multiply_one(const Mma& mma, std::int64_t batch) {
  switch (mma.arithmetic.method) {
    case Method::fma_chain:
      return for_each(mma.m, mma.threads, [&](std::int64_t row) { fma_row(mma, batch, row); });
    case Method::integer:
    case Method::xor_popc:
      return for_each(mma.m, mma.threads, [&](std::int64_t row) { integer_row(mma, batch, row); });
    case Method::blocks:
    case Method::two_halves: return multiply_floats(mma, batch);
  }
}

}  // namespace

void multiply(const Mma& mma) {
  Mma of_thread = mma;  // many small products: the threads share the batch, else the rows
  const bool many = mma.batch > mma.m;
  if (many) of_thread.threads = 1;
  for_each(mma.batch, many ? mma.threads : 1,
           [&](std::int64_t batch) { multiply_one(of_thread, batch); });
}

}  // namespace tcgemm::emulate
