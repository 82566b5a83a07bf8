// Two passes over a group: its largest element, then quotients and their rounding.
//
//   group = box of rows x columns;  a whole tensor is one group whose rows are boxes of their own,
//   and all threads meet between its passes
#include "cpu/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "cpu/orient.h"
#include "cpu/epilogue.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {
namespace {

// Elements that are worth a thread of their own.
constexpr std::int64_t kWorkPerThread = 1 << 15;
constexpr std::int64_t kPiece = 1024;  // of a row that is converted at once

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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
    if (q_.granularity != Granularity::tensor) return each_box(parallel, &Quantizer::group);
    each_box(parallel, &Quantizer::measure);
    *q_.scales = scale(largest_.load());
    each_box(parallel, &Quantizer::convert_all);
  }

 private:
  using Step = void (Quantizer::*)(std::int64_t index);

  void each_box(const Parallel& parallel, Step step) {
    const std::int64_t boxes = q_.batch * boxes_m_ * boxes_n_;
    const std::int64_t work = std::max<std::int64_t>(1, box_rows_ * box_columns_);
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / work);
    struct Context {
      Quantizer* self;
      Step step;
    } context{this, step};
    const auto body = [](std::int64_t first, std::int64_t last, void* context) {
      const auto [self, step] = *static_cast<Context*>(context);
      for (std::int64_t index = first; index < last; ++index) (self->*step)(index);
    };
    if (parallel.threads == 1 || boxes <= grain) return body(0, boxes, &context);
    parallel.run(0, boxes, grain, body, &context);
  }

  void group(std::int64_t index) {
    const Box box = at(index);
    q_.scales[index] = scale(largest(box));
    convert(box, q_.scales[index]);
  }

  void measure(std::int64_t index) {
    const std::int32_t size = largest(at(index));
    std::int32_t seen = largest_.load();
    while (seen < size && !largest_.compare_exchange_weak(seen, size)) {
    }
  }

  void convert_all(std::int64_t index) { convert(at(index), *q_.scales); }

  Box at(std::int64_t index) const {
    const std::int64_t column = index % boxes_n_ * box_columns_;
    const std::int64_t row = index / boxes_n_ % boxes_m_ * box_rows_;
    const std::int64_t batch = index / boxes_n_ / boxes_m_;
    return {batch, row, column, std::min(box_rows_, q_.rows - row),
            std::min(box_columns_, q_.cols - column)};
  }

  // f(x in f32, n of them, the index of the first) for pieces of the box's rows.
  template <class F>
  void each_piece(const Box& box, F f) const {
    float x[kPiece];
    for (std::int64_t i = box.row; i < box.row + box.rows; ++i) {
      for (std::int64_t done = 0; done < box.columns; done += kPiece) {
        const std::int64_t n = std::min(kPiece, box.columns - done);
        const std::int64_t column = box.column + done;
        kernels_.load(q_.x.dtype, element(q_.x, box.batch, i, column), q_.x.stride_col, n, x);
        f(x, n, (box.batch * q_.rows + i) * q_.cols + column);
      }
    }
  }

  // Of the finite elements, as size_bits.
  std::int32_t largest(const Box& box) const {
    constexpr std::int32_t infinity = 0x7f800000;
    std::int32_t most = 0;
    each_piece(box, [&](const float* x, std::int64_t n, std::int64_t) {
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int32_t size = size_bits(x[j]);
        most = std::max(most, size < infinity ? size : 0);
      }
    });
    return most;
  }

  float scale(std::int32_t size) const {
    if (size == 0) return 1.0f;
    return std::max(std::bit_cast<float>(size) / limit(q_.dtype), 0x1p-126f);
  }

  void convert(const Box& box, float scale) const {
    const float most = limit(q_.dtype);
    each_piece(box, [&](float* x, std::int64_t n, std::int64_t at) {
      for (std::int64_t j = 0; j < n; ++j) {
        const float quotient = x[j] / scale;
        x[j] = quotient < -most ? -most : quotient;  // s8 would saturate to -128
      }
      kernels_.store(q_.dtype, x, n, static_cast<char*>(q_.values) + at, 1);
    });
  }

  const Quantization& q_;
  const Kernels<float>& kernels_;
  std::int64_t box_rows_, box_columns_;  // of a whole one
  std::int64_t boxes_m_, boxes_n_;
  std::atomic<std::int32_t> largest_ = 0;
};

}  // namespace

void quantize(const Quantization& quantization, const Parallel& parallel, Isa isa) {
  Quantizer(quantization, kernel_set(isa).f32).run(parallel);
}

void quantize(const Quantization& quantization, const Parallel& parallel) {
  quantize(quantization, parallel, active_isa());
}

}  // namespace tcgemm::cpu
