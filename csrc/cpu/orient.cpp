// Chooses the orientation of a problem and the number of its matrices, from strides alone.
#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

bool is_broadcast(const Matrix& matrix) { return matrix.stride_batch == 0; }

// True if f is true of every matrix whose rows are rows of the result.
template <class F>
bool all_with_result_rows(Problem& p, F f) {
  for (const Slot slot : p.operands.given() & kRowsOfResult) {
    if (!f(p[slot])) return false;
  }
  return true;
}

// A batch is one taller matrix if it shares b and its rows continue into the next matrix.
void fold_batch(Problem& p) {
  if (p.batch == 1) return;
  for (const Slot slot : p.operands.given() & kBatchedWithB) {
    if (!is_broadcast(p[slot])) return;
  }
  if (p.has(Slot::scale_a) && p[Slot::scale_a].shift_row != 0)
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
  const bool column_major = p[Slot::out].stride_col != 1 && p[Slot::out].stride_row == 1 && p.m > 1;
  return column || column_major;
}

}  // namespace

OrientedProblem orient(const Problem& problem) {
  OrientedProblem oriented{problem, false};
  fold_batch(oriented.problem);
  if (better_transposed(oriented.problem)) {
    oriented.problem = transposed(oriented.problem);
    oriented.swap_ab = true;
  }
  return oriented;
}

}  // namespace tcgemm::cpu
