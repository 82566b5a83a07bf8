// Which orientation of a product, and how many matrices: decided from strides alone.
#include "cpu/orient.h"

#include <optional>

namespace tcgemm::cpu {
namespace {

bool serves_all(const Matrix& matrix) { return matrix.stride_batch == 0; }

// f of every matrix whose rows are rows of the result.
template <class F>
bool all_with_rows(Problem& p, F f) {
  for (Matrix* matrix : {&p.a, &p.out}) {
    if (!f(*matrix)) return false;
  }
  for (auto* matrix : {&p.c, &p.bias, &p.residual, &p.zero_a}) {
    if (*matrix && !f(**matrix)) return false;
  }
  return !p.scale_a || f(p.scale_a->values);
}

// A batch that shares b and whose rows go on from matrix to matrix is one taller matrix.
void fold_batch(Problem& p) {
  if (p.batch == 1 || !serves_all(p.b)) return;
  if (p.zero_b && !serves_all(*p.zero_b)) return;
  if (p.scale_b && !serves_all(p.scale_b->values)) return;
  if (p.scale_a && p.scale_a->shift_row != 0) return;  // a block of rows would end within a value
  const auto goes_on = [&](const Matrix& x) {
    return p.m == 1 || x.stride_batch == p.m * x.stride_row;
  };
  if (!all_with_rows(p, goes_on)) return;
  all_with_rows(p, [&](Matrix& x) {
    if (p.m == 1) x.stride_row = x.stride_batch;
    return true;
  });
  p.m *= p.batch;
  p.batch = 1;
}

// A vector of the inner loops is a piece of a row. Factors commute, so the bits are the same.
bool better_transposed(const Problem& p) {
  const bool column = p.n == 1 && p.m > 1;
  const bool column_major = p.out.stride_col != 1 && p.out.stride_row == 1 && p.m > 1;
  return column || column_major;
}

}  // namespace

Arranged arrange(const Problem& problem) {
  Problem p = problem;
  fold_batch(p);
  if (better_transposed(p)) return {transposed(p), true};
  return {p, false};
}

}  // namespace tcgemm::cpu
