// Products of b1 operands by popcount, 64 bits at a time.
#include "cpu/binary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

constexpr std::int64_t kWorkPerThread = 1 << 16;  // bytes of pairs that are worth a thread

// Eight bytes, or fewer at the end of a row.
std::uint64_t load_word(const std::uint8_t* p, std::int64_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, static_cast<std::size_t>(std::min<std::int64_t>(bytes, 8)));
  return word;
}

// The ones of f(a word of a, the word of b).
template <class F>
std::int32_t count_ones(const std::uint8_t* a, const std::uint8_t* b, std::int64_t bytes, F f) {
  std::int32_t count = 0;
  for (std::int64_t i = 0; i < bytes; i += 8)
    count += std::popcount(f(load_word(a + i, bytes - i), load_word(b + i, bytes - i)));
  return count;
}

class BinaryGemm {
 public:
  explicit BinaryGemm(const Problem& problem)
      : p_(problem), bytes_(bytes_of(problem.k, DType::b1)) {}

  void run(const Parallel& parallel) {
    const std::int64_t rows = p_.batch * p_.m;
    const std::int64_t work = std::max<std::int64_t>(1, p_.n * bytes_);
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / work);
    if (parallel.threads == 1 || rows <= grain) return run_rows(0, rows);
    const auto body = [](std::int64_t first, std::int64_t last, void* self) {
      static_cast<BinaryGemm*>(self)->run_rows(first, last);
    };
    parallel.run(0, rows, grain, body, this);
  }

 private:
  // The first byte of row i of a, or of column j of b.
  const std::uint8_t* row(Slot slot, std::int64_t batch, std::int64_t i, std::int64_t j) const {
    return static_cast<const std::uint8_t*>(element(p_[slot], batch, i, j));
  }

  std::int32_t value(const std::uint8_t* a, const std::uint8_t* b) const {
    static_assert(kBinaryOperations == 3);
    if (p_.binary == BinaryOperation::and_) return count_ones(a, b, bytes_, std::bit_and<>());
    const std::int32_t differ = count_ones(a, b, bytes_, std::bit_xor<>());
    return p_.binary == BinaryOperation::xor_ ? differ : std::int32_t(p_.k) - 2 * differ;
  }

  void run_rows(std::int64_t first, std::int64_t last) {
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t batch = index / p_.m, i = index % p_.m;
      const std::uint8_t* const a = row(Slot::a, batch, i, 0);
      for (std::int64_t j = 0; j < p_.n; ++j)
        *static_cast<std::int32_t*>(element(p_[Slot::out], batch, i, j)) =
            value(a, row(Slot::b, batch, 0, j));
    }
  }

  const Problem& p_;
  std::int64_t bytes_;
};

}  // namespace

void binary_gemm(const Problem& problem, const Parallel& parallel) {
  BinaryGemm(problem).run(parallel);
}

}  // namespace tcgemm::cpu
