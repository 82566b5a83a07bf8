// Parts of a product: some rows or columns of the result, some of k, or some matrices of the batch.
#pragma once

#include <cstdint>

#include "core/integer.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::ops {

// Rows (Axis::m) or columns (Axis::n) of the result from `first` on, or the result of some of k
// (Axis::k). Where one scale serves several of them, `first` is a multiple of their number.
Problem strip_of(Problem problem, Axis axis, std::int64_t first, std::int64_t extent);

// Some matrices of the batch.
Problem matrices_of(Problem problem, std::int64_t first, std::int64_t count);

// The parts of a batch-invariant product whose sums of slices of k are too large for one workspace:
// some matrices of the batch, or some rows of one matrix. No bit depends on them. The product must
// not be empty.
class Strips {
 public:
  static constexpr std::int64_t kMostSumsBytes = std::int64_t{256} << 20;

  Strips(const Problem& problem, const Plan& plan);

  std::int64_t count() const {
    return ceil_div(problem_.batch, matrices_) * ceil_div(problem_.m, rows_);
  }
  Problem operator[](std::int64_t index) const;

 private:
  const Problem& problem_;
  std::int64_t matrices_, rows_;  // of a part
};

}  // namespace tcgemm::ops
