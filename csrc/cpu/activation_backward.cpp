// One task is a block of rows by a chunk of columns: it writes gz and the sums of the block. A
// second loop adds the sums of the blocks in their order.
#include "cpu/activation_backward.h"

#include <algorithm>
#include <vector>

#include "core/integer.h"
#include "cpu/kernels.h"
#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

constexpr std::int64_t kBlockRows = 256;
constexpr std::int64_t kChunk = 512;  // columns that are converted at a time
// Elements that are worth a thread.
constexpr std::int64_t kWorkPerThread = 1 << 14;

class Backward {
 public:
  Backward(const ActivationBackward& task, const Kernels<float>& kernels)
      : task_(task),
        kernels_(kernels),
        rows_(task.batch * task.rows),
        blocks_(ceil_div(rows_, kBlockRows)),
        chunks_(ceil_div(task.cols, kChunk)),
        partial_sums_(task.sums ? blocks_ * task.cols : 0) {}

  void run(const Parallel& parallel) {
    for_each(parallel, blocks_ * chunks_, kBlockRows * kChunk, &Backward::finish_block);
    if (task_.sums) for_each(parallel, chunks_, blocks_ * kChunk, &Backward::add_blocks);
  }

 private:
  using Function = void (Backward::*)(std::int64_t index);

  void for_each(const Parallel& parallel, std::int64_t count, std::int64_t work,
                Function function) {
    struct Context {
      Backward* self;
      Function function;
    } context{this, function};
    const auto body = [](std::int64_t first, std::int64_t last, void* context) {
      const auto [self, function] = *static_cast<Context*>(context);
      for (std::int64_t index = first; index < last; ++index) (self->*function)(index);
    };
    const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / std::max(work, kChunk));
    if (parallel.threads == 1 || count <= grain) return body(0, count, &context);
    parallel.run(0, count, grain, body, &context);
  }

  void finish_block(std::int64_t index) {
    const std::int64_t block = index / chunks_, column = index % chunks_ * kChunk;
    const std::int64_t n = std::min(kChunk, task_.cols - column);
    const std::int64_t last = std::min(rows_, (block + 1) * kBlockRows);
    float sums[kChunk] = {};
    for (std::int64_t row = block * kBlockRows; row < last; ++row) {
      float g[kChunk], z[kChunk];
      load(task_.g, row, column, n, g);
      if (task_.activation != Activation::none) {
        load(task_.z, row, column, n, z);
        multiply_derivative(z, n, g);
        char* const to =
            static_cast<char*>(task_.gz) + (row * task_.cols + column) * bytes(task_.gz_dtype);
        kernels_.store(task_.gz_dtype, g, n, to, 1);
      }
      for (std::int64_t j = 0; j < n; ++j) sums[j] += g[j];
    }
    if (task_.sums) std::copy_n(sums, n, partial_sums_.begin() + (block * task_.cols + column));
  }

  void add_blocks(std::int64_t chunk) {
    const std::int64_t column = chunk * kChunk, n = std::min(kChunk, task_.cols - column);
    float sums[kChunk] = {};
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const float* const partial = partial_sums_.data() + block * task_.cols + column;
      for (std::int64_t j = 0; j < n; ++j) sums[j] += partial[j];
    }
    kernels_.store(task_.sum_dtype, sums, n,
                   static_cast<char*>(task_.sums) + column * bytes(task_.sum_dtype), 1);
  }

  void load(const Matrix& matrix, std::int64_t row, std::int64_t column, std::int64_t n,
            float* out) const {
    const std::int64_t batch = row / task_.rows;
    kernels_.load(matrix.dtype, element(matrix, batch, row - batch * task_.rows, column), 1, n,
                  out);
  }

  void multiply_derivative(const float* z, std::int64_t n, float* g) const {
    with_activation(task_.activation, [&]<Activation kActivation>() {
      for (std::int64_t j = 0; j < n; ++j)
        g[j] = Formula<kActivation, Exact<float>>::backward(g[j], z[j]);
    });
  }

  const ActivationBackward& task_;
  const Kernels<float>& kernels_;
  const std::int64_t rows_, blocks_, chunks_;
  std::vector<float> partial_sums_;
};

}  // namespace

void activation_backward(const ActivationBackward& task, const Parallel& parallel,
                         CpuFeatures features) {
  Backward(task, kernel_set(features).f32).run(parallel);
}

void activation_backward(const ActivationBackward& task, const Parallel& parallel) {
  activation_backward(task, parallel, active_cpu_features());
}

}  // namespace tcgemm::cpu
