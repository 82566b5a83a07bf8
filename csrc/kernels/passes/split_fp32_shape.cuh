// How the split passes cut an f32 operand, for the doors and the kernels alike.
//
// Threads hold eight words of 16 bytes, and come together until they hold what has one range.
//
//   K-major    a team of 8 to 256 threads a row; a unit is the rows of a block
//   MN-major   a unit is a strip of neighbouring columns over all of k, which the blocks of a
//              cluster share:
//
//                 columns:  16 or 32
//                          |--------|
//                      k | |  rank 0|
//                        v |--------|
//                          |  rank 1|
//                          |--------|
//
// A block, or cluster, leaves a note of the units that it goes through. Whatever the GPU, these are
// the same: shapes alone decide.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "kernels/passes/row.cuh"

namespace tcgemm::passes {

inline constexpr int kSplitBlock = 256;  // threads
inline constexpr int kWordElements = 4;  // 16 bytes of the operand, 8 of a part
inline constexpr int kHeldWords = 8;     // of a thread, in registers
inline constexpr int kLargestCluster = 8;
inline constexpr int kEnoughBlocks = 256;  // about two for each multiprocessor

// Teams, strips and clusters are powers of two, here as exponents: every block divides by them.
constexpr std::int64_t ceil_shift(std::int64_t x, int shift) {
  return (x + (std::int64_t(1) << shift) - 1) >> shift;
}
inline constexpr int kLogBlock = 8, kLogWord = 2, kLogHeld = 3, kLogLargestCluster = 3;
static_assert(kSplitBlock == 1 << kLogBlock && kWordElements == 1 << kLogWord &&
              kHeldWords == 1 << kLogHeld && kLargestCluster == 1 << kLogLargestCluster);

constexpr int words_of(std::int64_t k) {
  return (static_cast<int>(k) + kWordElements - 1) >> kLogWord;
}

// Threads of a row's team: so many that they hold it, and that there are enough blocks.
constexpr int row_team(const SplitFp32Operand& operand) {
  constexpr int kEnough = kEnoughBlocks * kSplitBlock;
  const int words = words_of(operand.k);
  const std::int64_t all = operand.rows * operand.batch;
  const int rows = all < kEnough ? static_cast<int>(all) : kEnough;
  int team = 3;
  while (team < kLogBlock && words > 1 << team &&
         (words > 1 << (team + kLogHeld) || rows << team < kEnough))
    ++team;
  return team;
}

constexpr std::int64_t strips(std::int64_t rows, int words) {
  return ceil_shift(rows, words + kLogWord);
}

// Words across a strip. Of a wide one 64 bytes of a part are written side by side; narrow ones are
// taken where k is too long for a cluster to hold wide ones, or there would be too few of them.
constexpr int strip_words(const SplitFp32Operand& operand) {
  const std::int64_t wide = strips(operand.rows, 3) * operand.batch;
  return operand.k > 4096 || wide * kLargestCluster < kEnoughBlocks ? 2 : 3;
}

// All but what depends on the cluster. No GPU's memory holds 2^31 units.
constexpr SplitFp32Partition cut_of(const SplitFp32Operand& operand) {
  SplitFp32Partition cut;
  std::int64_t units = 0;
  if (operand.mn_major) {
    cut.size = strip_words(operand);
    cut.across = static_cast<int>(strips(operand.rows, cut.size));
    units = cut.across * operand.batch;
  } else {
    cut.size = row_team(operand);
    cut.rounds = static_cast<int>(ceil_shift(words_of(operand.k), cut.size + kLogHeld));
    units = ceil_shift(operand.rows * operand.batch, kLogBlock - cut.size);
  }
  cut.units = static_cast<int>(units);
  cut.statistics = units < kMaxSplitStatistics ? cut.units : kMaxSplitStatistics;
  return cut;
}

// Blocks that share a strip: so many that their registers hold it, and that there are enough. Two
// at least: blocks that are no cluster cannot send (st.async).
constexpr int strip_cluster(const SplitFp32Operand& operand) {
  const std::int64_t k = operand.k, all = operand.cut.units;
  const int lines = kLogBlock - operand.cut.size;
  int cluster = 1;
  while (cluster < kLogLargestCluster && k > 1 << (cluster + lines) &&
         (k > 1 << (cluster + lines + kLogHeld) || all << cluster < kEnoughBlocks))
    ++cluster;
  return cluster;
}

// What depends on the cluster, an exponent too. Its blocks take whole rounds' lines of k; the last
// ones may have fewer, or none.
constexpr void share(SplitFp32Operand& operand, int cluster) {
  SplitFp32Partition& cut = operand.cut;
  if (operand.mn_major) {
    const int lines = kLogBlock - cut.size;
    cut.lines = static_cast<int>(ceil_shift(operand.k, cluster + lines)) << lines;
    cut.rounds = static_cast<int>(ceil_shift(cut.lines, lines + kLogHeld));
    cut.blocks = cut.statistics << cluster;
  } else {
    cut.blocks = static_cast<int>(ceil_shift(cut.statistics, cluster)) << cluster;
  }
}

// The second pass has no use for whole rows or columns: its units are what a block holds at once.
// Words across one of an MN-major operand:
constexpr int tile_words(std::int64_t rows) { return rows > 64 ? 5 : rows > 32 ? 4 : 3; }
constexpr int tile_lines(int words) { return kLogBlock - words + kLogHeld; }

constexpr int tiles_down(std::int64_t k, int words) {
  return static_cast<int>(ceil_shift(k, tile_lines(words)));
}

constexpr int second_units(const SplitFp32Operand& operand) {
  if (!operand.mn_major) return operand.cut.units * operand.cut.rounds;
  const int words = tile_words(operand.rows);
  return static_cast<int>(strips(operand.rows, words) * operand.batch) *
         tiles_down(operand.k, words);
}

}  // namespace tcgemm::passes
