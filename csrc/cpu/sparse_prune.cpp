// prune: by groups, or by blocks of 4 x 4.
#include <array>
#include <bit>

#include "cpu/kernels.h"
#include "cpu/sparse.h"
#include "cpu/sparse_boxes.h"

namespace tcgemm::cpu {
namespace {

constexpr int kBlockDim = 4, kPairs = 6, kLanes = 16;
constexpr int kStripColumns = kLanes * kBlockDim;  // columns of kLanes blocks
constexpr unsigned kPairMasks[kPairs] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};

static_assert(kBoxColumns % kStripColumns == 0 && kBoxRows % kBlockDim == 0);

struct Choice {
  std::uint8_t top, bottom;  // the pairs of two rows as a number with two digits in base 6
  std::uint16_t mask;        // the kept elements, four bits a row
};

constexpr auto kChoices = [] {
  std::array<Choice, 90> table{};
  std::size_t count = 0;
  for (unsigned top = 0; top < kPairs * kPairs; ++top)
    for (unsigned bottom = 0; bottom < kPairs * kPairs; ++bottom) {
      const unsigned rows[kBlockDim] = {kPairMasks[top / kPairs], kPairMasks[top % kPairs],
                                        kPairMasks[bottom / kPairs], kPairMasks[bottom % kPairs]};
      bool two_per_column = true;
      for (int column = 0; column < kBlockDim; ++column) {
        unsigned kept = 0;
        for (const unsigned row : rows) kept += row >> column & 1;
        two_per_column = two_per_column && kept == 2;
      }
      if (two_per_column)
        table.at(count++) = {
            static_cast<std::uint8_t>(top), static_cast<std::uint8_t>(bottom),
            static_cast<std::uint16_t>(rows[0] | rows[1] << 4 | rows[2] << 8 | rows[3] << 12)};
    }
  return table;
}();

static_assert(kChoices.back().mask != 0);

using Lanes = float[kLanes];

// A block tries all 90 choices:
//
//   four rows of a box     one sum of magnitudes for each row and pair         4 x  6 sums
//                          their sums for rows 0 and 1, and for rows 2 and 3   2 x 36 sums
//                          one more addition for each choice of four pairs     90 sums
//
// Adjacent blocks are SIMD lanes: the innermost loops run over them.
//
// The best choice of each block, from the magnitudes in four rows of kLanes blocks.
void choose_masks(const float (&magnitude)[kBlockDim][kStripColumns],
                  std::int32_t (&chosen)[kLanes]) {
  Lanes row[kBlockDim][kPairs], top[kPairs * kPairs], bottom[kPairs * kPairs], best;
  for (int i = 0; i < kBlockDim; ++i)
    for (int pair = 0; pair < kPairs; ++pair) {
      const int first = std::countr_zero(kPairMasks[pair]);
      const int second = std::bit_width(kPairMasks[pair]) - 1;
      for (int n = 0; n < kLanes; ++n)
        row[i][pair][n] =
            magnitude[i][kBlockDim * n + first] + magnitude[i][kBlockDim * n + second];
    }
  for (int pairs = 0; pairs < kPairs * kPairs; ++pairs)
    for (int n = 0; n < kLanes; ++n) {
      top[pairs][n] = row[0][pairs / kPairs][n] + row[1][pairs % kPairs][n];
      bottom[pairs][n] = row[2][pairs / kPairs][n] + row[3][pairs % kPairs][n];
    }
  std::fill_n(best, kLanes, -1.0f);
  std::fill_n(chosen, kLanes, 0);
  for (int c = 0; c < static_cast<int>(kChoices.size()); ++c)
    for (int n = 0; n < kLanes; ++n) {
      const float sum = top[kChoices[c].top][n] + bottom[kChoices[c].bottom][n];
      chosen[n] = sum > best[n] ? c : chosen[n];
      best[n] = sum > best[n] ? sum : best[n];
    }
}

// x if the lowest bit of the mask is 1, else 0. A branch would be mispredicted.
template <class Bits>
Bits kept_or_zero(Bits x, unsigned mask) {
  return x & static_cast<Bits>(-(mask & 1));
}

template <class Bits>
void store_box(const Pruning& p, const Box& box, const Bits* x) {
  for (std::int64_t i = 0; i < box.rows; ++i)
    std::memcpy(static_cast<Bits*>(p.pruned) + (box.row + i) * p.k + box.column,
                x + i * kBoxColumns, box.columns * sizeof(Bits));
}

template <class Element, Pattern pattern>
void prune_groups(const Pruning& p, const Box& box) {
  constexpr int kGroup = group(pattern);
  typename Element::Bits x[kBoxRows * kBoxColumns];
  load_box(p.w, box, kBoxColumns, x);
  for (auto* from = x; from < x + box.rows * kBoxColumns; from += kGroup) {
    const unsigned mask = largest_mask<Element, pattern>(from);
    for (int i = 0; i < kGroup; ++i) from[i] = kept_or_zero(from[i], mask >> i);
  }
  store_box(p, box, x);
}

template <class Bits>
void prune_blocks(const Pruning& p, Load<float> load, const Box& box) {
  Bits x[kBoxRows * kBoxColumns] = {};  // rows that pad the last block are zeros
  load_box(p.w, box, kBoxColumns, x);
  for (std::int64_t i = 0; i < box.rows; i += kBlockDim)
    for (std::int64_t j = 0; j < box.columns; j += kStripColumns) {
      Bits* const from = x + i * kBoxColumns + j;
      float magnitude[kBlockDim][kStripColumns];
      for (int r = 0; r < kBlockDim; ++r) {
        load(p.w.dtype, from + r * kBoxColumns, 1, kStripColumns, magnitude[r]);
        for (float& m : magnitude[r]) {
          constexpr std::uint32_t most = std::bit_cast<std::uint32_t>(0x1p124f);
          const std::uint32_t bits = std::bit_cast<std::uint32_t>(m) & 0x7fffffff;
          m = std::bit_cast<float>(std::min(bits, most));
        }
      }
      std::int32_t chosen[kLanes];
      choose_masks(magnitude, chosen);
      for (int r = 0; r < kBlockDim; ++r)
        for (int column = 0; column < kStripColumns; ++column) {
          const unsigned mask = kChoices[chosen[column / kBlockDim]].mask;
          Bits& value = from[r * kBoxColumns + column];
          value = kept_or_zero(value, mask >> (kBlockDim * r + column % kBlockDim));
        }
    }
  store_box(p, box, x);
}

}  // namespace

void prune(const Pruning& pruning, const Parallel& parallel) {
  const Load<float> load = kernel_set(active_cpu_features()).f32.load;
  visit(pruning.w.dtype, pruning.pattern, [&]<class Element>(Element, auto pattern) {
    for_each_box(parallel, pruning.rows, pruning.k, [&](const Box& box) {
      if (pruning.transposable)
        prune_blocks<typename Element::Bits>(pruning, load, box);
      else
        prune_groups<Element, pattern()>(pruning, box);
    });
  });
}

}  // namespace tcgemm::cpu
