// The CTAs of a cluster that share operands.
#pragma once

namespace tcgemm {

// m x n CTAs with adjacent tiles. Those along m have the same columns, and share b; those along n
// have the same rows, and share a. Rank m_index + m * n_index has tile (m_index, n_index).
struct ClusterShape {
  int m = 1, n = 1;

  constexpr int size() const { return m * n; }
  constexpr bool operator==(const ClusterShape&) const = default;
};

// The largest portable cluster.
inline constexpr int kMostClusterCtas = 8;

}  // namespace tcgemm
