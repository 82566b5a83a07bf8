// prune: by groups, or by blocks of 4 x 4 with all 90 choices tried.
//
//   four rows of a box     one sum of magnitudes for each row and pair         4 x  6 sums
//                          those of rows 0 and 1, of rows 2 and 3              2 x 36 sums
//                          one more addition for each choice of four pairs     90
//
// Blocks that stand side by side are lanes: every loop's innermost runs over them.
#include <array>
#include <bit>
#include <limits>

#include "cpu/kernels.h"
#include "cpu/sparse.h"
#include "cpu/sparse_boxes.h"

namespace tcgemm::cpu {
namespace {

constexpr int kSide = 4, kPairs = 6, kLanes = 16;
constexpr int kStrip = kLanes * kSide;  // columns of so many blocks
constexpr unsigned kPairMasks[kPairs] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};

static_assert(kBoxColumns % kStrip == 0 && kBoxRows % kSide == 0);

struct Choice {
  std::uint8_t top, bottom;  // the pairs of two rows as a number of two digits in base 6
  std::uint16_t mask;        // what is kept, four bits a row
};

constexpr auto kChoices = [] {
  std::array<Choice, 90> table{};
  std::size_t count = 0;
  for (unsigned top = 0; top < kPairs * kPairs; ++top)
    for (unsigned bottom = 0; bottom < kPairs * kPairs; ++bottom) {
      const unsigned rows[kSide] = {kPairMasks[top / kPairs], kPairMasks[top % kPairs],
                                    kPairMasks[bottom / kPairs], kPairMasks[bottom % kPairs]};
      bool two = true;  // in each column
      for (int column = 0; column < kSide; ++column) {
        unsigned kept = 0;
        for (const unsigned row : rows) kept += row >> column & 1;
        two = two && kept == 2;
      }
      if (two)
        table.at(count++) = {
            static_cast<std::uint8_t>(top), static_cast<std::uint8_t>(bottom),
            static_cast<std::uint16_t>(rows[0] | rows[1] << 4 | rows[2] << 8 | rows[3] << 12)};
    }
  return table;
}();

static_assert(kChoices.back().mask != 0);

using Lanes = float[kLanes];

// The best choice of each of the blocks whose magnitudes stand in four rows of a strip.
void choose(const float (&magnitude)[kSide][kStrip], std::int32_t (&chosen)[kLanes]) {
  Lanes row[kSide][kPairs], top[kPairs * kPairs], bottom[kPairs * kPairs], most;
  for (int i = 0; i < kSide; ++i)
    for (int pair = 0; pair < kPairs; ++pair) {
      const int first = std::countr_zero(kPairMasks[pair]);
      const int second = std::bit_width(kPairMasks[pair]) - 1;
      for (int n = 0; n < kLanes; ++n)
        row[i][pair][n] = magnitude[i][kSide * n + first] + magnitude[i][kSide * n + second];
    }
  for (int pairs = 0; pairs < kPairs * kPairs; ++pairs)
    for (int n = 0; n < kLanes; ++n) {
      top[pairs][n] = row[0][pairs / kPairs][n] + row[1][pairs % kPairs][n];
      bottom[pairs][n] = row[2][pairs / kPairs][n] + row[3][pairs % kPairs][n];
    }
  std::fill_n(most, kLanes, -1.0f);
  std::fill_n(chosen, kLanes, 0);
  for (int c = 0; c < static_cast<int>(kChoices.size()); ++c)
    for (int n = 0; n < kLanes; ++n) {
      const float sum = top[kChoices[c].top][n] + bottom[kChoices[c].bottom][n];
      chosen[n] = sum > most[n] ? c : chosen[n];
      most[n] = sum > most[n] ? sum : most[n];
    }
}

// The lowest bit of the mask decides. No branch: nothing predicts which elements are kept.
template <class Bits>
Bits kept_or_zero(Bits x, unsigned mask) {
  return x & static_cast<Bits>(-(mask & 1));
}

template <class Bits>
void write(const Pruning& p, const Box& box, const Bits* x) {
  for (std::int64_t i = 0; i < box.rows; ++i)
    std::memcpy(static_cast<Bits*>(p.pruned) + (box.row + i) * p.k + box.column,
                x + i * kBoxColumns, box.columns * sizeof(Bits));
}

template <class Element, Pattern pattern>
void prune_groups(const Pruning& p, const Box& box) {
  constexpr int kGroup = group(pattern);
  typename Element::Bits x[kBoxRows * kBoxColumns];
  gather(p.w, box, kBoxColumns, x);
  for (auto* from = x; from < x + box.rows * kBoxColumns; from += kGroup) {
    const unsigned mask = largest<Element, pattern>(from);
    for (int i = 0; i < kGroup; ++i) from[i] = kept_or_zero(from[i], mask >> i);
  }
  write(p, box, x);
}

template <class Bits>
void prune_blocks(const Pruning& p, Load<float> load, const Box& box) {
  Bits x[kBoxRows * kBoxColumns] = {};  // rows that fill up the last block are zeros
  gather(p.w, box, kBoxColumns, x);
  for (std::int64_t i = 0; i < box.rows; i += kSide)
    for (std::int64_t j = 0; j < box.columns; j += kStrip) {
      Bits* const from = x + i * kBoxColumns + j;
      float magnitude[kSide][kStrip];
      for (int r = 0; r < kSide; ++r) {
        load(p.w.dtype, from + r * kBoxColumns, 1, kStrip, magnitude[r]);
        for (float& m : magnitude[r]) {
          constexpr std::uint32_t most = std::bit_cast<std::uint32_t>(0x1p124f);
          const std::uint32_t word = std::bit_cast<std::uint32_t>(m) & 0x7fffffff;
          m = std::bit_cast<float>(std::min(word, most));
        }
      }
      std::int32_t chosen[kLanes];
      choose(magnitude, chosen);
      for (int r = 0; r < kSide; ++r)
        for (int column = 0; column < kStrip; ++column) {
          const unsigned mask = kChoices[chosen[column / kSide]].mask;
          Bits& value = from[r * kBoxColumns + column];
          value = kept_or_zero(value, mask >> (kSide * r + column % kSide));
        }
    }
  write(p, box, x);
}

}  // namespace

void prune(const Pruning& pruning, const Parallel& parallel) {
  const Load<float> load = kernel_set(active_isa()).f32.load;
  visit(pruning.w.dtype, pruning.pattern, [&]<class Element>(Element, auto pattern) {
    each_box(parallel, pruning.rows, pruning.k, [&](const Box& box) {
      if (pruning.transposable)
        prune_blocks<typename Element::Bits>(pruning, load, box);
      else
        prune_groups<Element, pattern()>(pruning, box);
    });
  });
}

}  // namespace tcgemm::cpu
