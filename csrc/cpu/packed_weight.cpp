// Reads a packed weight block by block: 128 rows, 64 of k.
#include "cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace tcgemm::cpu {
namespace {

constexpr int kRows = PackedLayout::kRows, kDepth = PackedLayout::kDepth;
constexpr int kUnitRows = 16;  // rows of a fragment of a

static_assert(kWeightFormats == 5);

// Four codes as the values that the scale multiplies.
template <WeightFormat kFormat>
Quad<float> numbers(const UintQuad& codes, float point, const float* table) {
  if constexpr (kFormat == WeightFormat::table4)
    return Quad<float>{table[codes[0]], table[codes[1]], table[codes[2]], table[codes[3]]};
  else if constexpr (kFormat == WeightFormat::e4m3)
    return decode<E4M3, Quad<float>>(codes);
  else if constexpr (kFormat == WeightFormat::int8)
    return __builtin_convertvector(Quad<std::int32_t>((codes ^ 128u) - 128u), Quad<float>);
  else
    return __builtin_convertvector(Quad<std::int32_t>(codes), Quad<float>) - point;
}

template <WeightFormat kFormat>
class Reader {
 public:
  explicit Reader(const Unpacking& unpacking)
      : layout_(unpacking.layout),
        table_(reinterpret_cast<const float*>(unpacking.packed)),
        codes_(reinterpret_cast<const std::uint8_t*>(unpacking.packed) +
               PackedLayout::kHeaderBytes),
        scales_(reinterpret_cast<const float*>(unpacking.packed + layout_.scales_offset())) {}

  // Rows `row` and row + 1 of the block, which the same words have, and all of its k. `row` is
  // even.
  void read(std::int64_t block_n, std::int64_t block_k, int row, float (&values)[2][kDepth]) const {
    const int unit = row / kUnitRows, first_lane = row % kUnitRows / 2 * 4;
    const std::uint8_t* const bytes =
        codes_ + (block_n * layout_.blocks_k() + block_k) * layout_.block_bytes();
    const auto words = [&](int vector, int word) {
      const std::uint8_t* const lanes = bytes + (vector * 32 + first_lane) * 16 + word * 4;
      std::uint32_t lane[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&lane[i], lanes + i * 16, sizeof lane[i]);
      return UintQuad{lane[0], lane[1], lane[2], lane[3]};
    };
    for (int step = 0; step < PackedLayout::kSteps; ++step) {
      UintQuad halves[2];  // each has 8 of k: registers 0 and 1, and registers 2 and 3
      if constexpr (kIsWide) {
        for (int half = 0; half < 2; ++half)
          halves[half] = words(2 * unit + step / 2, step % 2 * 2 + half);
      } else {
        halves[0] = halves[1] = words(unit, step);
      }
      const float* const scales = this->scales(block_n, block_k * kDepth + step * 16) + row;
      for (int odd = 0; odd < 2; ++odd)
        for (int half = 0; half < 2; ++half)
          read_eight(halves[half], odd, half, scales + odd, values[odd] + step * 16 + half * 8);
    }
  }

 private:
  static constexpr bool kIsWide = bits(kFormat) == 8;

  void read_eight(const UintQuad& words, int odd, int half, const float* scale, float* to) const {
    constexpr std::uint32_t mask = kIsWide ? 255 : 15;
    const int pair = odd + 2 * half;
    const int low = kIsWide ? 16 * odd : kFormat == WeightFormat::int4 ? 4 * pair : 8 * pair;
    const int high = low + (kIsWide ? 8 : kFormat == WeightFormat::int4 ? 16 : 4);
    const WeightZeros zeros = layout_.weight.zeros;
    const float second = zeros == WeightZeros::none ? 0.0f : scale[kRows];
    const float point = zeros == WeightZeros::points ? second : 8.0f;
    const auto value = [&](int shift) {
      const Quad<float> x = numbers<kFormat>(words >> shift & mask, point, table_) * *scale;
      return zeros == WeightZeros::offsets ? x + second : x;
    };
    const Quad<float> even_k = value(low), odd_k = value(high);
    const Quad<float> front = __builtin_shufflevector(even_k, odd_k, 0, 4, 1, 5);
    const Quad<float> back = __builtin_shufflevector(even_k, odd_k, 2, 6, 3, 7);
    std::memcpy(to, &front, sizeof front);
    std::memcpy(to + 4, &back, sizeof back);
  }

  // Of the group of k, for 128 rows. The points or offsets follow.
  const float* scales(std::int64_t block_n, std::int64_t k) const {
    const std::int32_t group_size = layout_.weight.group_size;
    const std::int64_t group = group_size == 0 ? 0 : k / group_size;
    return scales_ + (block_n * layout_.groups() + group) * layout_.vectors() * kRows;
  }

  const PackedLayout layout_;
  const float* table_;
  const std::uint8_t* codes_;
  const float* scales_;
};

template <WeightFormat kFormat>
void unpack_blocks(const Unpacking& unpacking, std::int64_t first, std::int64_t last) {
  const Reader<kFormat> reader(unpacking);
  const Store<float> store = kernel_set(active_cpu_features()).f32.store;
  const PackedLayout& layout = unpacking.layout;
  float values[2][kDepth];
  for (std::int64_t block_n = first; block_n < last; ++block_n)
    for (std::int64_t k = 0; k < layout.k; k += kDepth) {
      const std::int64_t row = block_n * kRows - unpacking.first;
      const int rows = static_cast<int>(std::min<std::int64_t>(kRows, unpacking.rows - row));
      for (int i = 0; i < rows; ++i) {
        if (i % 2 == 0) reader.read(block_n, k / kDepth, i, values);
        const std::int64_t place = (row + i) * layout.k + k;
        store(unpacking.to, values[i % 2], std::min<std::int64_t>(kDepth, layout.k - k),
              static_cast<std::uint8_t*>(unpacking.out) + bytes_of(place, unpacking.to), 1);
      }
    }
}

}  // namespace

void unpack(const Unpacking& unpacking, const Parallel& parallel) {
  const auto body = [](std::int64_t first, std::int64_t last, void* context) {
    const auto& task = *static_cast<const Unpacking*>(context);
    switch (task.layout.weight.format) {
      case WeightFormat::int4: return unpack_blocks<WeightFormat::int4>(task, first, last);
      case WeightFormat::table4: return unpack_blocks<WeightFormat::table4>(task, first, last);
      case WeightFormat::int8: return unpack_blocks<WeightFormat::int8>(task, first, last);
      case WeightFormat::e4m3: return unpack_blocks<WeightFormat::e4m3>(task, first, last);
      case WeightFormat::none: break;
    }
  };
  Unpacking task = unpacking;
  const std::int64_t first = task.first / kRows, last = ceil_div(task.first + task.rows, kRows);
  if (parallel.threads == 1 || last - first == 1) return body(first, last, &task);
  parallel.run(first, last, 1, body, &task);
}

}  // namespace tcgemm::cpu
