// The accumulation of k blocks with block scales, and of integer k blocks.
#include "cpu/sums.h"

#include <cstddef>

#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

// Adds the sums along k of each row of the panels: integers, exact in f32 within a block.
void add_rows(const Panels<float>& block, const float* panels, int width,
              std::vector<std::uint32_t>& sums) {
  for (std::size_t row = 0; row < sums.size(); row += width) {
    float lanes[kMaxPanelWidth] = {};
    const float* panel = panels + static_cast<std::int64_t>(row) * block.depth;
    for (std::int64_t k = 0; k < block.depth; ++k, panel += width) {
      for (int lane = 0; lane < width; ++lane) lanes[lane] += panel[lane];
    }
    for (int lane = 0; lane < width && row + lane < sums.size(); ++lane) {
      sums[row + lane] += static_cast<std::int32_t>(lanes[lane]);
    }
  }
}

std::uint32_t zero_point(const Problem& p, Slot slot, std::int64_t batch, std::int64_t row,
                         std::int64_t column) {
  if (!p.has(slot)) return 0;
  return *static_cast<const std::uint32_t*>(element(p[slot], batch, row, column));
}

}  // namespace

void BlockScaledSums::add(const Tile& tile, const Panels<float>& panels, const float* sums,
                          float* totals) {
  scales_b_.assign(tile.n, 1.0f);
  for (std::int64_t j = 0; p_.has(Slot::scale_b) && j < tile.n; ++j) {
    scales_b_[j] = scale_at(p_[Slot::scale_b], tile.batch, panels.k, tile.column + j);
  }
  const float* const scales_b = scales_b_.data();
  for (std::int64_t i = 0; i < tile.m; ++i, sums += tile.pitch, totals += tile.pitch) {
    const float scale_a = p_.has(Slot::scale_a)
                              ? scale_at(p_[Slot::scale_a], tile.batch, tile.row + i, panels.k)
                              : 1.0f;
    for (std::int64_t j = 0; j < tile.n; ++j) totals[j] += scale_a * scales_b[j] * sums[j];
  }
}

void IntegerSums::start(const Tile& tile) {
  sums_a_.assign(p_.has(Slot::zero_b) ? tile.m : 0, 0);
  sums_b_.assign(p_.has(Slot::zero_a) ? tile.n : 0, 0);
}

void IntegerSums::add(const Tile& tile, const Panels<float>& panels, const float* sums,
                      std::uint32_t* totals) {
  for (std::int64_t i = 0; i < tile.m; ++i, sums += tile.pitch, totals += tile.pitch) {
    for (std::int64_t j = 0; j < tile.n; ++j) totals[j] += static_cast<std::int32_t>(sums[j]);
  }
  add_rows(panels, panels.a, kernels_.panel_rows, sums_a_);
  add_rows(panels, panels.b, kernels_.panel_columns, sums_b_);
}

std::uint32_t* IntegerSums::exact(const Tile& tile, std::int64_t i, std::uint32_t* totals) const {
  std::uint32_t* const row = totals + i * tile.pitch;
  const std::uint32_t zero_a = zero_point(p_, Slot::zero_a, tile.batch, tile.row + i, 0);
  for (std::int64_t j = 0; p_.has(Slot::zero_a) && j < tile.n; ++j) row[j] -= zero_a * sums_b_[j];
  if (p_.has(Slot::zero_b)) {
    const std::uint32_t rest = sums_a_[i] - static_cast<std::uint32_t>(p_.k) * zero_a;
    for (std::int64_t j = 0; j < tile.n; ++j) {
      row[j] -= zero_point(p_, Slot::zero_b, tile.batch, 0, tile.column + j) * rest;
    }
  }
  return row;
}

float* IntegerSums::values(const Tile& tile, std::int64_t i, std::uint32_t* totals,
                           float* sums) const {
  const std::uint32_t* const row = exact(tile, i, totals);
  float* const values = sums + i * tile.pitch;
  for (std::int64_t j = 0; j < tile.n; ++j) {
    values[j] = static_cast<float>(static_cast<std::int32_t>(row[j]));
  }
  return values;
}

}  // namespace tcgemm::cpu
