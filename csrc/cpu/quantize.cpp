// Quantises each group of elements in two passes: amax, then rounded quotients.
//
//   row, 1x128, 128x128:   a group is one box of rows x columns, and one thread runs both passes
//   tensor:                every row is a box of the one group; all threads end the first pass
//                          before the second starts
#include "cpu/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "core/integer.h"
#include "cpu/epilogue.h"
#include "cpu/kernels.h"
#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

// Elements that are worth a thread.
constexpr std::int64_t kWorkPerThread = 1 << 15;
constexpr std::int64_t kChunk = 1024;           // elements of a row that are converted at a time
constexpr std::int32_t kInfinity = 0x7f800000;  // the magnitude_bits of Inf; those of NaN are above

struct Box {
  std::int64_t batch, row, column, rows, columns;
};

class Quantizer {
 public:
  Quantizer(const Quantization& quantization, const Kernels<float>& kernels)
      : q_(quantization), kernels_(kernels) {
    const bool blocks = q_.granularity >= Granularity::block_1x128;
    box_rows_ = q_.granularity == Granularity::block_128x128 ? kScaleBlock : 1;
    box_columns_ = blocks ? kScaleBlock : std::max<std::int64_t>(q_.cols, 1);
    boxes_m_ = ceil_div(q_.rows, box_rows_);
    boxes_n_ = blocks ? ceil_div(q_.cols, box_columns_) : 1;
  }

  void run(const Parallel& parallel) {
    if (q_.granularity != Granularity::tensor)
      return for_each_box(parallel, &Quantizer::quantize_box);
    for_each_box(parallel, &Quantizer::reduce_amax);
    set_scale(0, amax_bits_.load());
    for_each_box(parallel, &Quantizer::convert_all);
  }

 private:
  using BoxFunction = void (Quantizer::*)(std::int64_t index);

  void for_each_box(const Parallel& parallel, BoxFunction function) {
    const std::int64_t boxes = q_.batch * boxes_m_ * boxes_n_;
    const std::int64_t work = std::max<std::int64_t>(1, box_rows_ * box_columns_);
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / work);
    struct Context {
      Quantizer* self;
      BoxFunction function;
    } context{this, function};
    const auto body = [](std::int64_t first, std::int64_t last, void* context) {
      const auto [self, function] = *static_cast<Context*>(context);
      for (std::int64_t index = first; index < last; ++index) (self->*function)(index);
    };
    if (parallel.threads == 1 || boxes <= grain) return body(0, boxes, &context);
    parallel.run(0, boxes, grain, body, &context);
  }

  void quantize_box(std::int64_t index) {
    const Box box = box_at(index);
    set_scale(index, amax_bits(box));
    convert(box, q_.scales[index]);
  }

  void reduce_amax(std::int64_t index) {
    const std::int32_t magnitude = amax_bits(box_at(index));
    std::int32_t current = amax_bits_.load();
    while (current < magnitude && !amax_bits_.compare_exchange_weak(current, magnitude)) {
    }
  }

  void convert_all(std::int64_t index) { convert(box_at(index), *q_.scales); }

  Box box_at(std::int64_t index) const {
    const std::int64_t column = index % boxes_n_ * box_columns_;
    const std::int64_t row = index / boxes_n_ % boxes_m_ * box_rows_;
    const std::int64_t batch = index / boxes_n_ / boxes_m_;
    return {batch, row, column, std::min(box_rows_, q_.rows - row),
            std::min(box_columns_, q_.cols - column)};
  }

  // Calls f(elements in f32, their number, index of the first) for chunks of the box's rows.
  template <class F>
  void for_each_chunk(const Box& box, F f) const {
    float x[kChunk];
    for (std::int64_t i = box.row; i < box.row + box.rows; ++i) {
      for (std::int64_t done = 0; done < box.columns; done += kChunk) {
        const std::int64_t n = std::min(kChunk, box.columns - done);
        const std::int64_t column = box.column + done;
        kernels_.load(q_.x.dtype, element(q_.x, box.batch, i, column), q_.x.stride_col, n, x);
        f(x, n, (box.batch * q_.rows + i) * q_.cols + column);
      }
    }
  }

  // The magnitude_bits of the largest element; with given scales, of the largest finite one.
  std::int32_t amax_bits(const Box& box) const {
    const std::int64_t end = q_.given() ? kInfinity : std::int64_t(1) << 31;
    std::int32_t most = 0;
    for_each_chunk(box, [&](const float* x, std::int64_t n, std::int64_t) {
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int32_t magnitude = magnitude_bits(x[j]);
        most = std::max(most, magnitude < end ? magnitude : 0);
      }
    });
    return most;
  }

  void set_scale(std::int64_t group, std::int32_t amax_bits) const {
    const float amax = std::bit_cast<float>(amax_bits);
    if (q_.given())
      q_.amax[group] = amax;
    else if (amax_bits >= kInfinity)
      q_.scales[group] = std::numeric_limits<float>::quiet_NaN();
    else
      q_.scales[group] = amax_bits == 0 ? 1.0f : std::max(amax / limit(q_.dtype), 0x1p-126f);
  }

  void convert(const Box& box, float scale) const {
    const float most = limit(q_.dtype);
    for_each_chunk(box, [&](float* x, std::int64_t n, std::int64_t at) {
      for (std::int64_t j = 0; j < n; ++j) {
        const float quotient = x[j] / scale;
        x[j] = quotient < -most ? -most : quotient;  // otherwise s8 saturates to -128
      }
      kernels_.store(q_.dtype, x, n, static_cast<char*>(q_.values) + at, 1);
    });
  }

  const Quantization& q_;
  const Kernels<float>& kernels_;
  std::int64_t box_rows_, box_columns_;  // of a full box
  std::int64_t boxes_m_, boxes_n_;
  std::atomic<std::int32_t> amax_bits_ = 0;
};

}  // namespace

void quantize(const Quantization& quantization, const Parallel& parallel, CpuFeatures features) {
  Quantizer(quantization, kernel_set(features).f32).run(parallel);
}

void quantize(const Quantization& quantization, const Parallel& parallel) {
  quantize(quantization, parallel, active_cpu_features());
}

}  // namespace tcgemm::cpu
