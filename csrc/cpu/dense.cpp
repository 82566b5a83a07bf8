// The dense product: tiles of the result over threads, k blocks in ascending order within a tile.
//
//   tile of out, m x n:   for each k block:   pack a (m x depth) and b (depth x n)    second cache
//                                             sums += a b                             registers
//                         epilogue, rounding, out
//
// A tile needs nothing from another one, so any number of threads gives the same bits; `sums` holds
// the accumulators from one k block to the next, so blocks of any depth do.
#include "cpu/dense.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "cpu/epilogue.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {
namespace {

// Multiply-adds that are worth a thread of their own: some 5 us of AVX-512.
constexpr std::int64_t kWorkPerThread = 1 << 18;
// A panel of b, 256 x 32 f32, is 32 KiB. A multiple of 16, so that an f16 accumulator is rounded
// where it would be without blocks.
constexpr std::int64_t kBlockDepth = 256;
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kTileRowBytes = 2048;
constexpr std::int64_t kCacheLine = 64;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

template <class F>
bool all_with_rows(Problem& p, F f) {
  return f(p.a) && f(p.out) && (!p.c || f(*p.c)) && (!p.bias || f(*p.bias)) &&
         (!p.residual || f(*p.residual));
}

// A batch that shares b and whose rows go on from matrix to matrix is one taller matrix.
void fold_batch(Problem& p) {
  if (p.batch == 1 || p.b.stride_batch != 0) return;
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

// out^T = b^T a^T, where that makes rows of out contiguous or fills vectors: a vector is a piece of
// a row. Factors commute, so the bits are the same.
void choose_orientation(Problem& p) {
  const bool column = p.n == 1 && p.m > 1;
  const bool column_major = p.out.stride_col != 1 && p.out.stride_row == 1 && p.m > 1;
  if (!column && !column_major) return;
  std::swap(p.a, p.b);
  std::swap(p.m, p.n);
  for (Matrix* x : {&p.a, &p.b, &p.out}) *x = transposed(*x);
  for (auto* x : {&p.c, &p.bias, &p.residual}) {
    if (*x) *x = transposed(**x);
  }
}

template <class T>
class Product {
 public:
  Product(const Problem& problem, const Kernels<T>& kernels, int threads)
      : p_(problem), kernels_(kernels), depth_(std::min(kBlockDepth, p_.k)) {
    const auto split = [](std::int64_t extent, std::int64_t limit, int panel) {
      return round_up(ceil_div(extent, ceil_div(extent, limit)), panel);
    };
    rows_ = split(p_.m, kTileRows, kernels_.rows);
    columns_ = split(p_.n, kTileRowBytes / std::int64_t{sizeof(T)}, kernels_.columns);
    while (wasteful(threads) && work() >= 2 * kWorkPerThread) {
      const bool flat = rows_ <= kernels_.rows;
      if (flat && columns_ <= kernels_.columns) break;
      if (flat || (columns_ > rows_ && columns_ > kernels_.columns)) {
        columns_ = round_up(ceil_div(columns_, 2), kernels_.columns);
      } else {
        rows_ = round_up(ceil_div(rows_, 2), kernels_.rows);
      }
    }
  }

  void run(const Parallel& parallel) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / work());
    if (parallel.threads == 1 || tiles() <= grain) return run_tiles(0, tiles());
    const auto body = [](std::int64_t first, std::int64_t last, void* self) {
      static_cast<const Product*>(self)->run_tiles(first, last);
    };
    parallel.run(0, tiles(), grain, body, const_cast<Product*>(this));
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{kCacheLine}); }
  };

  std::int64_t tiles_m() const { return ceil_div(p_.m, rows_); }
  std::int64_t tiles_n() const { return ceil_div(p_.n, columns_); }
  std::int64_t tiles() const { return p_.batch * tiles_m() * tiles_n(); }
  // Of a tile; its epilogue counts for some steps of k.
  std::int64_t work() const {
    return std::min(rows_, p_.m) * std::min(columns_, p_.n) * (p_.k + 16);
  }
  // More than a fifth of the threads' time would be spent waiting for the last tiles.
  bool wasteful(int threads) const { return 5 * tiles() < 4 * round_up(tiles(), threads); }

  void run_tiles(std::int64_t first, std::int64_t last) const {
    constexpr std::int64_t line = kCacheLine / sizeof(T);
    const std::int64_t size_a = round_up(rows_ * depth_, line);
    const std::int64_t size_b = round_up(columns_ * depth_, line);
    const std::int64_t size_sums = round_up(rows_ * columns_, line);
    const std::size_t total = (size_a + size_b + size_sums + columns_) * sizeof(T);
    const std::unique_ptr<T, Free> memory(
        static_cast<T*>(::operator new(total, std::align_val_t{kCacheLine})));
    T* const a = memory.get();
    T* const b = a + size_a;
    T* const sums = b + size_b;
    T* const scratch = sums + size_sums;
    for (std::int64_t tile = first; tile < last; ++tile) {
      const std::int64_t row = tile % tiles_m() * rows_;
      const std::int64_t column = tile / tiles_m() % tiles_n() * columns_;
      const std::int64_t batch = tile / tiles_m() / tiles_n();
      const std::int64_t m = std::min(rows_, p_.m - row);
      const std::int64_t n = std::min(columns_, p_.n - column);
      accumulate(batch, row, column, m, n, a, b, sums);
      for (std::int64_t i = 0; i < m; ++i) {
        T* const values = sums + i * columns_;
        if (!p_.plain()) {
          apply_epilogue(p_, kernels_.load, batch, row + i, column, n, values, scratch);
        }
        kernels_.store(p_.out.dtype, values, n, element(p_.out, batch, row + i, column),
                       p_.out.stride_col);
      }
    }
  }

  void accumulate(std::int64_t batch, std::int64_t row, std::int64_t column, std::int64_t m,
                  std::int64_t n, T* a, T* b, T* sums) const {
    const bool round_f16 = p_.accumulator == DType::f16;
    std::int64_t k = 0;
    do {  // once even where k is 0: that makes the sums zero
      const std::int64_t depth = std::min(depth_, p_.k - k);
      kernels_.pack(p_.a.dtype, element(p_.a, batch, row, k), p_.a.stride_row, p_.a.stride_col, m,
                    depth, kernels_.rows, a);
      kernels_.pack(p_.b.dtype, element(p_.b, batch, k, column), p_.b.stride_col, p_.b.stride_row,
                    n, depth, kernels_.columns, b);
      kernels_.multiply({depth, k == 0, round_f16}, m, n, a, b, sums, columns_);
      k += depth;
    } while (k < p_.k);
  }

  const Problem& p_;
  const Kernels<T>& kernels_;
  std::int64_t depth_;
  std::int64_t rows_, columns_;  // of a tile
};

const KernelSet& kernel_set(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return kAvx512Kernels;
    case Isa::avx2:
      return kAvx2Kernels;
    default:
      return kBaselineKernels;
  }
}

}  // namespace

void gemm(const Problem& problem, const Parallel& parallel, Isa isa) {
  if (problem.empty()) return;
  Problem p = problem;
  fold_batch(p);
  choose_orientation(p);
  const KernelSet& kernels = kernel_set(isa);
  if (p.a.dtype == DType::f64) {
    Product<double>(p, kernels.f64, parallel.threads).run(parallel);
  } else {
    Product<float>(p, kernels.f32, parallel.threads).run(parallel);
  }
}

void gemm(const Problem& problem, const Parallel& parallel) {
  gemm(problem, parallel, active_isa());
}

}  // namespace tcgemm::cpu
