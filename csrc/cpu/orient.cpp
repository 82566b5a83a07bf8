// Chooses the orientation of a problem and the number of its matrices, from strides alone.
#include "cpu/orient.h"

#include <optional>

namespace tcgemm::cpu {
namespace {

bool is_broadcast(const Matrix& matrix) { return matrix.stride_batch == 0; }

// True if f is true of every matrix whose rows are rows of the result.
template <class F>
bool all_with_result_rows(Problem& p, F f) {
  for (Matrix* matrix : {&p.a, &p.out}) {
    if (!f(*matrix)) return false;
  }
  for (auto* matrix : {&p.c, &p.bias, &p.residual, &p.zero_a}) {
    if (*matrix && !f(**matrix)) return false;
  }
  return !p.scale_a || f(p.scale_a->values);
}

// A batch is one taller matrix if it shares b and its rows continue into the next matrix.
void fold_batch(Problem& p) {
  if (p.batch == 1 || !is_broadcast(p.b)) return;
  if (p.zero_b && !is_broadcast(*p.zero_b)) return;
  if (p.scale_b && !is_broadcast(p.scale_b->values)) return;
  if (p.scale_a && p.scale_a->shift_row != 0)
    return;  // a scale of 128 rows would span two matrices
  const auto rows_continue = [&](const Matrix& x) {
    return p.m == 1 || x.stride_batch == p.m * x.stride_row;
  };
  if (!all_with_result_rows(p, rows_continue)) return;
  all_with_result_rows(p, [&](Matrix& x) {
    if (p.m == 1) x.stride_row = x.stride_batch;
    return true;
  });
  p.m *= p.batch;
  p.batch = 1;
}

// The inner loops hold consecutive elements of a row in a vector. The factors of a product commute,
// so the transposed problem gives the same bits.
bool better_transposed(const Problem& p) {
  const bool column = p.n == 1 && p.m > 1;
  const bool column_major = p.out.stride_col != 1 && p.out.stride_row == 1 && p.m > 1;
  return column || column_major;
}

}  // namespace

OrientedProblem orient(const Problem& problem) {
  Problem p = problem;
  fold_batch(p);
  if (better_transposed(p)) return {transposed(p), true};
  return {p, false};
}

}  // namespace tcgemm::cpu
