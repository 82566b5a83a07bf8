// The operators for CPU tensors. csrc/cpu computes them on torch's threads.
#include <torch/csrc/stable/c/shim.h>

#include "cpu/activation_backward.h"
#include "cpu/dense.h"
#include "cpu/pack_weight.h"
#include "cpu/packed_weight.h"
#include "cpu/quantize.h"
#include "cpu/sparse.h"
#include "ops/product/batch.h"
#include "ops/register/register.h"
#include "ops/torch_error.h"

namespace tcgemm::ops {
namespace {

cpu::Parallel torch_threads() {
  std::uint32_t threads = 1;
  torch_get_num_threads(&threads);
  return {static_cast<int>(threads),
          [](std::int64_t begin, std::int64_t end, std::int64_t grain,
             void (*body)(std::int64_t, std::int64_t, void*), void* context) {
            if (torch_parallel_for(begin, end, grain, body, context) != 0)
              fail_in_torch("torch's thread pool");
          }};
}

// A 2:4 operand, rows x k, as a new dense matrix.
TensorHandle decompressed(const Matrix& values, const View& metadata, std::int64_t rows,
                          std::int64_t k, const View& like) {
  const Matrix codes{metadata.address, DType::u8, metadata.strides[0], metadata.strides[1]};
  const std::int64_t sizes[] = {rows, k};
  TensorHandle memory =
      allocate("a sparse operand as a dense one", {sizes, 2}, like.scalar_type, like);
  cpu::decompress({values, codes, rows, k, pattern_of(values.dtype), data(memory)},
                  torch_threads());
  return memory;
}

void run_dense(const BatchedProblem& batched) {
  const cpu::Parallel parallel = torch_threads();
  for_each_problem(batched, [&](const Problem& problem) { cpu::gemm(problem, parallel); });
}

// The products with the matrix that a packed weight stands for, in the dtype of a.
void run_packed(const BatchedProblem& batched, const View& a) {
  BatchedProblem unpacked = batched;
  Problem& p = unpacked.problem;
  const std::int64_t sizes[] = {p.n, p.k};
  const TensorHandle memory =
      allocate("a packed weight as a dense one", {sizes, 2}, a.scalar_type, a);
  cpu::unpack({{p.n, p.k, p.packed}, p[Slot::packed_b].address, a.dtype, data(memory)},
              torch_threads());
  p.set(Slot::b, Matrix{reinterpret_cast<std::uintptr_t>(data(memory)), a.dtype, 1, p.k});
  p.reset(Slot::packed_b);
  run_dense(unpacked);
}

void run_gemm(const BatchedProblem& batched, const CheckedGemm& checked, const Arguments&) {
  if (batched.problem.has_packed_weight()) return run_packed(batched, checked[Slot::a].view);
  if (!batched.problem.is_sparse()) return run_dense(batched);
  TensorHandle dense_a, dense_b;
  const auto dense = [](const TensorHandle& memory, DType type, std::int64_t k) {
    return Matrix{reinterpret_cast<std::uintptr_t>(data(memory)), type, k, 1};
  };
  BatchedProblem decompressed_batch = batched;
  Problem& p = decompressed_batch.problem;
  Matrix &a = p[Slot::a], &b = p[Slot::b];
  if (p.has(Slot::sparse_a)) {
    dense_a = decompressed(a, checked[Slot::sparse_a].view, p.m, p.k, checked[Slot::a].view);
    a = dense(dense_a, a.dtype, p.k);
  }
  if (p.has(Slot::sparse_b)) {
    dense_b =
        decompressed(transposed(b), checked[Slot::sparse_b].view, p.n, p.k, checked[Slot::b].view);
    b = transposed(dense(dense_b, b.dtype, p.k));
  }
  p.reset(Slot::sparse_a);
  p.reset(Slot::sparse_b);
  run_dense(decompressed_batch);
}

template <class Task, void (*pass)(const Task&, const cpu::Parallel&)>
void run(const Task& task, const View&) {
  pass(task, torch_threads());
}

// Without prepare: the CPU multiplies f32 operands as they are.
constexpr Backend kCpu{.target = Target::cpu,
                       .gemm = run_gemm,
                       .quantize = run<Quantization, cpu::quantize>,
                       .pack_weight = run<Packing, cpu::pack_weight>,
                       .activation_backward = run<ActivationBackward, cpu::activation_backward>,
                       .compress = run<Compression, cpu::compress>,
                       .decompress = run<Decompression, cpu::decompress>,
                       .gather = run<Gathering, cpu::gather>,
                       .prune = run<Pruning, cpu::prune>,
                       .tile = run<MetadataTiling, cpu::tile>};

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CPU, m) { tcgemm::ops::register_all<tcgemm::ops::kCpu>(m); }
