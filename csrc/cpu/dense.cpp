// The dense GEMM. Threads compute tiles of the result, and a tile walks its k blocks in ascending
// order.
#include "cpu/dense.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include "core/integer.h"
#include "cpu/binary.h"
#include "cpu/convert.h"
#include "cpu/epilogue.h"
#include "cpu/kernels.h"
#include "cpu/orient.h"
#include "cpu/sums.h"

namespace tcgemm::cpu {
namespace {

// Multiply-adds that are worth a thread: about 5 us of AVX-512.
constexpr std::int64_t kWorkPerThread = 1 << 18;
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kTileRowBytes = 2048;
constexpr std::int64_t kCacheLine = 64;

// The walk over one tile:
//
//   tile of out, m x n:   for each k block:   pack a (m x depth) and b (depth x n)    in L2
//                                             sums += a b                             in registers
//                         epilogue, rounding, out
//
// Tiles are independent, so any number of threads gives the same bits. `totals` holds the
// accumulators between k blocks, so the depth of a block does not change the bits.
template <class Sums>
class TiledGemm {
  using T = typename Sums::Operand;
  using Total = typename Sums::Total;
  static_assert(sizeof(Total) == sizeof(T));

 public:
  TiledGemm(const OrientedProblem& oriented, const Kernels<T>& kernels, int threads)
      : oriented_(oriented),
        p_(oriented.problem),
        kernels_(kernels),
        depth_(std::min(Sums::kDepth, p_.k)) {
    if (p_.has(Slot::amax) && p_.amax_continues) amax_bits_ = magnitude_bits(T(*amax_address()));
    const auto split = [](std::int64_t extent, std::int64_t limit, int panel) {
      return round_up(ceil_div(extent, ceil_div(extent, limit)), panel);
    };
    rows_ = split(p_.m, kTileRows, kernels_.panel_rows);
    columns_ = split(p_.n, kTileRowBytes / std::int64_t{sizeof(T)}, kernels_.panel_columns);
    while (leaves_threads_idle(threads) && work() >= 2 * kWorkPerThread) {
      const bool at_min_rows = rows_ <= kernels_.panel_rows;
      if (at_min_rows && columns_ <= kernels_.panel_columns) break;
      if (at_min_rows || (columns_ > rows_ && columns_ > kernels_.panel_columns)) {
        columns_ = round_up(ceil_div(columns_, 2), kernels_.panel_columns);
      } else {
        rows_ = round_up(ceil_div(rows_, 2), kernels_.panel_rows);
      }
    }
  }

  void run(const Parallel& parallel) {
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / work());
    if (parallel.threads == 1 || tiles() <= grain) {
      run_tiles(0, tiles());
    } else {
      const auto body = [](std::int64_t first, std::int64_t last, void* self) {
        static_cast<TiledGemm*>(self)->run_tiles(first, last);
      };
      parallel.run(0, tiles(), grain, body, this);
    }
    if (p_.has(Slot::amax)) {
      const T amax = std::bit_cast<T>(amax_bits_.load());
      narrow(static_cast<float>(amax), *amax_address());
    }
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{kCacheLine}); }
  };

  std::int64_t tiles_m() const { return ceil_div(p_.m, rows_); }
  std::int64_t tiles_n() const { return ceil_div(p_.n, columns_); }
  std::int64_t tiles() const { return p_.batch * tiles_m() * tiles_n(); }
  // Multiply-adds of a tile; its epilogue counts as 16 steps of k.
  std::int64_t work() const {
    return std::min(rows_, p_.m) * std::min(columns_, p_.n) * (p_.k + 16);
  }
  // True if the threads wait for the last tiles for more than a fifth of their time.
  bool leaves_threads_idle(int threads) const {
    return 5 * tiles() < 4 * round_up(tiles(), threads);
  }

  float* amax_address() const { return reinterpret_cast<float*>(p_[Slot::amax].address); }

  void run_tiles(std::int64_t first, std::int64_t last) {
    constexpr std::int64_t line_elements = kCacheLine / sizeof(T);
    const std::int64_t size_a = round_up(rows_ * depth_, line_elements);
    const std::int64_t size_b = round_up(columns_ * depth_, line_elements);
    const std::int64_t size_sums = round_up(rows_ * columns_, line_elements);
    const std::size_t total =
        (size_a + size_b + (Sums::kSeparateTotals ? 2 : 1) * size_sums + columns_) * sizeof(T);
    const std::unique_ptr<T, Free> memory(
        static_cast<T*>(::operator new(total, std::align_val_t{kCacheLine})));
    T* const a = memory.get();
    T* const b = a + size_a;
    T* const sums = b + size_b;
    T* const last_sums = Sums::kSeparateTotals ? sums + size_sums : sums;
    Total* const totals = reinterpret_cast<Total*>(last_sums);
    T* const scratch = last_sums + size_sums;
    Sums accumulation(p_, kernels_);
    MagnitudeBits<T> amax_bits = 0;
    for (std::int64_t index = first; index < last; ++index) {
      const Tile tile = tile_at(index);
      if constexpr (Sums::kSeparateTotals) {
        std::fill_n(totals, tile.m * tile.pitch, Total(0));
        accumulation.start(tile);
      }
      accumulate(tile, accumulation, a, b, sums, totals);
      for (std::int64_t i = 0; i < tile.m; ++i) {
        finish(tile, i, accumulation, sums, totals, scratch, amax_bits);
      }
    }
    MagnitudeBits<T> current = amax_bits_.load();
    while (current < amax_bits && !amax_bits_.compare_exchange_weak(current, amax_bits)) {
    }
  }

  Tile tile_at(std::int64_t index) const {
    const std::int64_t row = index % tiles_m() * rows_;
    const std::int64_t column = index / tiles_m() % tiles_n() * columns_;
    const std::int64_t batch = index / tiles_m() / tiles_n();
    return {batch,   row, column, std::min(rows_, p_.m - row), std::min(columns_, p_.n - column),
            columns_};
  }

  void accumulate(const Tile& tile, Sums& accumulation, T* a, T* b, T* sums, Total* totals) const {
    const Matrix &matrix_a = p_[Slot::a], &matrix_b = p_[Slot::b];
    const bool round_f16 = p_.accumulator == DType::f16;
    std::int64_t k = 0;
    do {  // runs once even if k is 0, which sets the sums to zero
      const std::int64_t depth = std::min(depth_, p_.k - k);
      kernels_.pack(matrix_a.dtype, p_.input_a, element(matrix_a, tile.batch, tile.row, k),
                    matrix_a.stride_row, matrix_a.stride_col, tile.m, depth, kernels_.panel_rows,
                    a);
      kernels_.pack(matrix_b.dtype, p_.input_b, element(matrix_b, tile.batch, k, tile.column),
                    matrix_b.stride_col, matrix_b.stride_row, tile.n, depth, kernels_.panel_columns,
                    b);
      const KBlock block = {depth, Sums::kSeparateTotals || k == 0, round_f16};
      kernels_.multiply(block, tile.m, tile.n, a, b, sums, tile.pitch);
      if constexpr (Sums::kSeparateTotals) accumulation.add(tile, {k, depth, a, b}, sums, totals);
      k += depth;
    } while (k < p_.k);
  }

  void finish(const Tile& tile, std::int64_t i, Sums& accumulation, T* sums, Total* totals,
              T* scratch, MagnitudeBits<T>& amax_bits) const {
    const Matrix& out = p_[Slot::out];
    const Segment segment = {tile.batch, tile.row + i, tile.column, tile.n};
    if constexpr (std::is_same_v<Sums, IntegerSums>) {
      if (out.dtype == DType::s32) {
        return store_integers(p_, segment, accumulation.exact(tile, i, totals));
      }
    }
    T* const values = accumulation.values(tile, i, totals, sums);
    if (!p_.has_default_epilogue()) {
      apply_epilogue(oriented_, kernels_, segment, values, scratch, amax_bits);
    }
    kernels_.store(out.dtype, values, tile.n, element(out, tile.batch, segment.row, tile.column),
                   out.stride_col);
  }

  const OrientedProblem& oriented_;
  const Problem& p_;
  const Kernels<T>& kernels_;
  std::int64_t depth_;
  std::int64_t rows_, columns_;  // of a tile
  std::atomic<MagnitudeBits<T>> amax_bits_ = 0;
};

template <class Sums, class T>
void run(const OrientedProblem& oriented, const Kernels<T>& kernels, const Parallel& parallel) {
  TiledGemm<Sums>(oriented, kernels, parallel.threads).run(parallel);
}

}  // namespace

void gemm(const Problem& problem, const Parallel& parallel, CpuFeatures features) {
  if (problem.empty()) return;
  if (problem.input_a == DType::b1) return binary_gemm(problem, parallel);
  const OrientedProblem oriented = orient(problem);
  const KernelSet& kernels = kernel_set(features);
  const DType type = problem[Slot::a].dtype;
  if (type == DType::f64) return run<FmaChain<double>>(oriented, kernels.f64, parallel);
  if (is_int8(type) || is_int4(type)) return run<IntegerSums>(oriented, kernels.f32, parallel);
  if (problem.block_scaled()) return run<BlockScaledSums>(oriented, kernels.f32, parallel);
  run<FmaChain<float>>(oriented, kernels.f32, parallel);
}

void gemm(const Problem& problem, const Parallel& parallel) {
  gemm(problem, parallel, active_cpu_features());
}

}  // namespace tcgemm::cpu
