// Reads the elements of a packed weight one by one.
#include "cpu/packed_weight.h"

#include <algorithm>

#include "cpu/convert.h"

namespace tcgemm::cpu {
namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 16;  // that are worth a thread

// The place of an element in a block of 128 rows and 64 of k: PackedLayout.
struct Place {
  int lane, step;  // step: 16 of k
  int pair;        // the register of the fragment
  int high;        // the second of its elements

  Place(int row, int k)
      : lane(row % 16 / 2 * 4 + k % 8 / 2),
        step(k / 16),
        pair(row % 2 + k % 16 / 8 * 2),
        high(k % 2) {}
};

class Reader {
 public:
  explicit Reader(const Unpacking& unpacking)
      : layout_(unpacking.layout),
        table_(reinterpret_cast<const float*>(unpacking.packed)),
        codes_(reinterpret_cast<const std::uint8_t*>(unpacking.packed) +
               PackedLayout::kHeaderBytes),
        scales_(reinterpret_cast<const float*>(unpacking.packed + layout_.scales_offset())) {}

  float element(std::int64_t row, std::int64_t k) const {
    const PackedWeight& weight = layout_.weight;
    const std::int64_t group = weight.group_size == 0 ? 0 : k / weight.group_size;
    const float* const scale =
        scales_ +
        ((row / PackedLayout::kRows * layout_.groups() + group) * layout_.vectors()) *
            PackedLayout::kRows +
        row % PackedLayout::kRows;
    const float second = weight.zeros == WeightZeros::none ? 0.0f : scale[PackedLayout::kRows];
    const float point = weight.zeros == WeightZeros::points ? second : 8.0f;
    const std::uint8_t code = this->code(row, k);
    switch (weight.format) {
      case WeightFormat::int4: {
        const float scaled = (static_cast<float>(code) - point) * *scale;
        return weight.zeros == WeightZeros::offsets ? scaled + second : scaled;
      }
      case WeightFormat::table4: return table_[code] * *scale;
      case WeightFormat::int8: return static_cast<float>(static_cast<std::int8_t>(code)) * *scale;
      case WeightFormat::e4m3: return widen(E4M3{code}) * *scale;
      case WeightFormat::none: break;
    }
    return 0;
  }

 private:
  std::uint8_t code(std::int64_t row, std::int64_t k) const {
    constexpr int kRows = PackedLayout::kRows, kDepth = PackedLayout::kDepth;
    const std::int64_t block = row / kRows * layout_.blocks_k() + k / kDepth;
    const int unit = static_cast<int>(row % kRows / 16);
    const Place place(static_cast<int>(row % 16), static_cast<int>(k % kDepth));
    const std::uint8_t* const bytes = codes_ + block * layout_.block_bytes();
    if (bits(layout_.weight.format) == 8) {
      const int half = place.step / 2;
      return bytes[((unit * 2 + half) * 32 + place.lane) * 16 + place.step % 2 * 8 +
                   place.pair / 2 * 4 + place.pair % 2 * 2 + place.high];
    }
    const std::uint8_t* const word = bytes + (unit * 32 + place.lane) * 16 + place.step * 4;
    const int nibble = layout_.weight.format == WeightFormat::int4 ? place.pair + 4 * place.high
                                                                   : 2 * place.pair + place.high;
    return word[nibble / 2] >> (nibble % 2 * 4) & 15;
  }

  const PackedLayout layout_;
  const float* table_;
  const std::uint8_t* codes_;
  const float* scales_;
};

template <class Element>
void unpack_rows(const Unpacking& unpacking, std::int64_t first, std::int64_t last) {
  const Reader reader(unpacking);
  const std::int64_t k_extent = unpacking.layout.k;
  auto* out = static_cast<Element*>(unpacking.out) + first * k_extent;
  for (std::int64_t row = first; row < last; ++row)
    for (std::int64_t k = 0; k < k_extent; ++k) narrow(reader.element(row, k), *out++);
}

}  // namespace

void unpack(const Unpacking& unpacking, const Parallel& parallel) {
  const auto body = [](std::int64_t first, std::int64_t last, void* context) {
    const auto& task = *static_cast<const Unpacking*>(context);
    if (task.to == DType::f16)
      unpack_rows<Half>(task, first, last);
    else
      unpack_rows<BFloat16>(task, first, last);
  };
  Unpacking task = unpacking;
  const std::int64_t rows =
      std::max<std::int64_t>(1, kElementsAtOnce / std::max<std::int64_t>(1, task.layout.k));
  if (parallel.threads == 1 || task.layout.n <= rows) return body(0, task.layout.n, &task);
  parallel.run(0, task.layout.n, rows, body, &task);
}

}  // namespace tcgemm::cpu
