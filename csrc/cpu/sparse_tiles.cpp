// tile: reorders metadata for mma.sp and wgmma.sp. Each thread writes whole tiles of 64 rows by a k
// block.
#include <algorithm>

#include "cpu/orient.h"
#include "cpu/sparse.h"

namespace tcgemm::cpu {
namespace {

constexpr int kPairsPerHalf = 4;
constexpr unsigned kNoPairs = kNoGroups & 0xffff;

class Tiler {
 public:
  explicit Tiler(const MetadataTiling& tiling)
      : t_(tiling), shape_{tiling.rows, tiling.k, tiling.bits} {}

  void run(const Parallel& parallel) {
    const std::int64_t words = shape_.tile_bytes() / 4;
    std::fill(t_.tiles + words, t_.tiles + shape_.bytes() / 4, kNoGroups);
    const auto body = [](std::int64_t first, std::int64_t last, void* context) {
      for (std::int64_t index = first; index < last; ++index)
        static_cast<Tiler*>(context)->tile_block(index);
    };
    constexpr std::int64_t grain = 16;
    const std::int64_t blocks = shape_.blocks_m() * shape_.blocks_k();
    if (parallel.threads == 1 || blocks <= grain) return body(0, blocks, this);
    parallel.run(0, blocks, grain, body, this);
  }

 private:
  void tile_block(std::int64_t index) {
    const std::int64_t first_row = index % shape_.blocks_m() * MetadataTiles::kRows;
    const std::int64_t first_k = index / shape_.blocks_m() * shape_.block_k();
    std::uint32_t* out = t_.tiles + index * (shape_.block_bytes() / 4);
    for (int lane = 0; lane < MetadataTiles::kLanes; ++lane)
      for (int word = 0; word < shape_.words(); ++word) {
        const HalfWord low = half_word(t_.bits, lane % 32, word, 0);
        const HalfWord high = half_word(t_.bits, lane % 32, word, 1);
        const std::int64_t row = first_row + lane / 32 * 16;
        *out++ = pairs(row + low.row, first_k + low.k) | pairs(row + high.row, first_k + high.k)
                                                             << 16;
      }
  }

  // The 16 metadata bits of four groups of a row; the first group starts at element k.
  std::uint32_t pairs(std::int64_t row, std::int64_t k) const {
    if (row >= t_.rows || k >= t_.k) return kNoPairs;
    const std::int64_t remaining = (t_.k - k + group(t_.pattern) - 1) / group(t_.pattern);
    const int count = static_cast<int>(std::min<std::int64_t>(remaining, kPairsPerHalf));
    const unsigned valid = (1u << 4 * count) - 1;
    unsigned codes = 0;
    if (t_.pattern == Pattern::two_of_four) {
      codes = byte(row, k / 8);
      if (count > 2) codes |= byte(row, k / 8 + 1) << 8;
    } else {
      const unsigned positions = byte(row, k / 8);
      for (int n = 0; n < kPairsPerHalf; ++n) codes |= half_code(positions >> 2 * n & 3) << 4 * n;
    }
    return (codes & valid) | (kNoPairs & ~valid);
  }

  unsigned byte(std::int64_t row, std::int64_t column) const {
    return *static_cast<const std::uint8_t*>(element(t_.metadata, 0, row, column));
  }

  const MetadataTiling& t_;
  const MetadataTiles shape_;
};

}  // namespace

void tile(const MetadataTiling& tiling, const Parallel& parallel) { Tiler(tiling).run(parallel); }

}  // namespace tcgemm::cpu
