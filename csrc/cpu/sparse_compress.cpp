// compress, decompress and gather, box by box. A box starts at column c of w:
//
//   w          its elements start at column c of a row
//   values     half as many, from column c / 2 on
//   metadata   a byte for 8 elements, from column c / 8 on: 2 groups of "2:4", or 4 of "1:2"
#include <array>
#include <atomic>
#include <limits>

#include "cpu/sparse.h"
#include "cpu/sparse_boxes.h"

namespace tcgemm::cpu {
namespace {

constexpr std::int64_t kBoxValues = kBoxColumns / 2, kBoxBytes = kBoxColumns / 8;
constexpr int kElementsPerByte = 8;

static_assert(kBoxColumns % kElementsPerByte == 0);

// The result of compressing a group, by the mask of its nonzeros.
struct Choice {
  std::uint8_t code;  // the positions that are kept, two bits each
  bool excess;
};

template <Pattern pattern>
constexpr auto choices() {
  std::array<Choice, 1 << group(pattern)> table{};
  for (unsigned mask = 0; mask < table.size(); ++mask) {
    unsigned chosen = 0;
    int count = 0;
    for (const bool zeros : {false, true})
      for (int i = 0; i < group(pattern); ++i) {
        if ((mask >> i & 1) == zeros) continue;
        if (count++ < kept(pattern)) chosen |= 1u << i;
        if (!zeros && count > kept(pattern)) table[mask].excess = true;
      }
    int position = 0;
    for (unsigned i = 0; i < group(pattern); ++i)
      if (chosen >> i & 1) table[mask].code |= i << 2 * position++;
  }
  return table;
}

template <Pattern pattern>
constexpr auto kChoices = choices<pattern>();

static_assert(kChoices<Pattern::two_of_four>[0b1000].code == pair_code(0, 3));
static_assert(kChoices<Pattern::two_of_four>[0b1110].excess);
static_assert(kChoices<Pattern::one_of_two>[0b10].code == 1);

// The smallest of the indices that any thread reports.
class AtomicMin {
 public:
  void update(std::int64_t index) {
    std::int64_t current = min_.load();
    while (index < current && !min_.compare_exchange_weak(current, index)) {
    }
  }
  std::int64_t get() const {
    const std::int64_t index = min_.load();
    return index == kNone ? -1 : index;
  }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> min_ = kNone;
};

template <class Element, Pattern pattern, bool prune>
class Compressor {
 public:
  using Bits = typename Element::Bits;

  explicit Compressor(const Compression& compression) : c_(compression) {}

  void run(const Parallel& parallel) {
    for_each_box(parallel, c_.rows, c_.k, [this](const Box& box) { compress(box); });
    c_.excess[0] = excess_.load();
    c_.excess[1] = first_excess_.get();
  }

 private:
  static constexpr int kGroup = group(pattern), kKept = kept(pattern);
  static constexpr int kGroupsPerByte = kElementsPerByte / kGroup;

  void compress(const Box& box) {
    Bits x[kBoxRows * kBoxColumns];
    load_box(c_.w, box, kBoxColumns, x);
    const std::int64_t pitch_values = value_columns(c_.k, pattern);
    const std::int64_t pitch_metadata = metadata_columns(c_.k, pattern);
    const std::int64_t groups = (box.columns + kGroup - 1) / kGroup;
    std::int64_t excess = 0, first = -1;
    for (std::int64_t i = 0; i < box.rows; ++i) {
      const std::int64_t row = box.row + i;
      Bits* const values = static_cast<Bits*>(c_.values) + row * pitch_values + box.column / 2;
      std::uint8_t* const metadata = c_.metadata + row * pitch_metadata + box.column / 8;
      for (std::int64_t g = 0; g < groups; g += kGroupsPerByte) {
        unsigned byte = 0;
        const int group_count =
            static_cast<int>(std::min<std::int64_t>(kGroupsPerByte, groups - g));
        for (int n = 0; n < group_count; ++n) {
          const Bits* const from = x + i * kBoxColumns + (g + n) * kGroup;
          const Choice choice = kChoices<pattern>[mask(from)];
          for (int j = 0; j < kKept; ++j)
            values[(g + n) * kKept + j] = from[choice.code >> 2 * j & 3];
          byte |= unsigned{choice.code} << 2 * kKept * n;
          if (!choice.excess) continue;
          ++excess;
          if (first < 0) first = row * c_.k + box.column + (g + n) * kGroup;
        }
        metadata[g / kGroupsPerByte] = static_cast<std::uint8_t>(byte);
      }
    }
    if (excess == 0) return;
    excess_ += excess;
    first_excess_.update(first);
  }

  static unsigned mask(const Bits* x) {
    return prune ? largest_mask<Element, pattern>(x) : nonzero_mask<Element, pattern>(x);
  }

  const Compression& c_;
  std::atomic<std::int64_t> excess_ = 0;
  AtomicMin first_excess_;
};

// A copy of the metadata of a box.
class BoxMetadata {
 public:
  BoxMetadata(const Matrix& metadata, const Box& box, Pattern pattern) {
    const std::int64_t bytes = metadata_columns(box.columns, pattern);
    load_box(metadata, {box.row, box.column / 8, box.rows, bytes}, kBoxBytes, bytes_);
  }

  // The positions of a row's values from `value` on, two bits each, the first in the lowest bits.
  unsigned codes_from(std::int64_t row, std::int64_t value) const {
    return bytes_[row * kBoxBytes + value / 4] >> value % 4 * 2;
  }

 private:
  std::uint8_t bytes_[kBoxRows * kBoxBytes];
};

template <class Bits, Pattern pattern>
void decompress_box(const Decompression& d, const Box& box) {
  constexpr int kGroup = group(pattern), kKept = kept(pattern);
  Bits values[kBoxRows * kBoxValues];
  const BoxMetadata metadata(d.metadata, box, pattern);
  const std::int64_t columns = value_columns(box.columns, pattern);
  load_box(d.values, {box.row, box.column / 2, box.rows, columns}, kBoxValues, values);
  for (std::int64_t i = 0; i < box.rows; ++i) {
    Bits row[kBoxColumns];
    for (std::int64_t v = 0; v < columns; v += kKept) {
      Bits* const to = row + v / kKept * kGroup;
      const unsigned code = metadata.codes_from(i, v);
      std::fill_n(to, kGroup, Bits{0});
      for (int j = kKept - 1; j >= 0; --j)
        to[code >> 2 * j & (kGroup - 1)] = values[i * kBoxValues + v + j];
    }
    std::memcpy(static_cast<Bits*>(d.w) + (box.row + i) * d.k + box.column, row,
                box.columns * sizeof(Bits));
  }
}

template <class Bits, Pattern pattern>
void gather_box(const Gathering& g, const Box& box) {
  constexpr int kGroup = group(pattern), kKept = kept(pattern);
  Bits x[kBoxRows * kBoxColumns];
  const BoxMetadata metadata(g.metadata, box, pattern);
  load_box(g.w, box, kBoxColumns, x);
  const std::int64_t columns = value_columns(box.columns, pattern);
  const std::int64_t pitch = value_columns(g.k, pattern);
  for (std::int64_t i = 0; i < box.rows; ++i) {
    Bits* const to = static_cast<Bits*>(g.values) + (box.row + i) * pitch + box.column / 2;
    for (std::int64_t v = 0; v < columns; ++v)
      to[v] = x[i * kBoxColumns + v / kKept * kGroup + (metadata.codes_from(i, v) & (kGroup - 1))];
  }
}

// Calls f with an unsigned type of the element's size and a pattern. These passes compare no
// magnitudes, so all 8-bit types are alike.
template <class F>
void visit_bits(DType type, Pattern pattern, F f) {
  visit(bits(type) == 8 ? DType::u8 : type, pattern, [&]<class Element>(Element, auto constant) {
    f.template operator()<typename Element::Bits, constant()>();
  });
}

}  // namespace

void compress(const Compression& compression, const Parallel& parallel) {
  visit(compression.w.dtype, compression.pattern, [&]<class Element>(Element, auto pattern) {
    if (compression.prune)
      Compressor<Element, pattern(), true>(compression).run(parallel);
    else
      Compressor<Element, pattern(), false>(compression).run(parallel);
  });
}

void decompress(const Decompression& decompression, const Parallel& parallel) {
  const Decompression& d = decompression;
  visit_bits(d.values.dtype, d.pattern, [&]<class Bits, Pattern pattern>() {
    for_each_box(parallel, d.rows, d.k,
                 [&](const Box& box) { decompress_box<Bits, pattern>(d, box); });
  });
}

void gather(const Gathering& gathering, const Parallel& parallel) {
  const Gathering& g = gathering;
  visit_bits(g.w.dtype, g.pattern, [&]<class Bits, Pattern pattern>() {
    for_each_box(parallel, g.rows, g.k, [&](const Box& box) { gather_box<Bits, pattern>(g, box); });
  });
}

}  // namespace tcgemm::cpu
