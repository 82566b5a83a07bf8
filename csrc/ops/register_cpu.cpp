// The operators for CPU tensors: csrc/cpu on torch's threads.
#include <torch/csrc/stable/c/shim.h>

#include "cpu/dense.h"
#include "cpu/quantize.h"
#include "cpu/sparse.h"
#include "ops/dense.h"
#include "ops/prepack.h"
#include "ops/quantize.h"
#include "ops/sparse.h"

namespace tcgemm::ops {
namespace {

cpu::Parallel torch_threads() {
  std::uint32_t threads = 1;
  torch_get_num_threads(&threads);
  return {static_cast<int>(threads),
          [](std::int64_t begin, std::int64_t end, std::int64_t grain,
             void (*body)(std::int64_t, std::int64_t, void*), void* context) {
            if (torch_parallel_for(begin, end, grain, body, context) != 0)
              fail("tcgemm: torch's thread pool failed; its message stands on stderr.");
          }};
}

// The dense matrix that a sparse operand, rows x k, stands for.
TensorHandle decompressed(const Matrix& values, const View& metadata, std::int64_t rows,
                          std::int64_t k, const View& like) {
  Decompression dense;
  dense.values = values;
  dense.metadata = {metadata.address, DType::u8, metadata.strides[0], metadata.strides[1]};
  dense.rows = rows;
  dense.k = k;
  dense.pattern = pattern_of(values.dtype);
  const std::int64_t sizes[] = {rows, k};
  TensorHandle memory = allocate("a sparse operand as a dense one", {sizes, 2}, like.type, like);
  dense.w = data(memory);
  cpu::decompress(dense, torch_threads());
  return memory;
}

void multiply(const BatchedProblem& products) {
  const cpu::Parallel parallel = torch_threads();
  for_each(products, [&](const Problem& problem) { cpu::gemm(problem, parallel); });
}

void run(const BatchedProblem& products, const CheckedGemm& g, const Arguments&) {
  if (!products.problem.sparse_a && !products.problem.sparse_b) return multiply(products);
  TensorHandle dense_a, dense_b;
  const auto dense = [](const TensorHandle& memory, DType type, std::int64_t k) {
    return Matrix{reinterpret_cast<std::uintptr_t>(data(memory)), type, k, 1};
  };
  BatchedProblem made = products;
  Problem& p = made.problem;
  if (p.sparse_a) {
    dense_a = decompressed(p.a, g.operand[SparseA].view, p.m, p.k, g.operand[A].view);
    p.a = dense(dense_a, p.a.dtype, p.k);
  }
  if (p.sparse_b) {
    dense_b = decompressed(transposed(p.b), g.operand[SparseB].view, p.n, p.k, g.operand[B].view);
    p.b = transposed(dense(dense_b, p.b.dtype, p.k));
  }
  p.sparse_a.reset();
  p.sparse_b.reset();
  multiply(made);
}

Results product(Op op, const Arguments& arguments) {
  return dense(op, arguments, Target::cpu, run);
}

void run_quantize(const Quantization& quantization, const View&) {
  cpu::quantize(quantization, torch_threads());
}

Quantized quantized(const QuantizeArguments& arguments) {
  return quantize(arguments, run_quantize);
}

TensorHandle prepared(const TensorHandle& w) { return prepare(w, nullptr); }

template <class Task, void (*function)(const Task&, const cpu::Parallel&)>
void run_sparse(const Task& task, const View&) {
  function(task, torch_threads());
}

SparseResults sparse_result(SparseOp op, const SparseArguments& arguments) {
  constexpr RunSparse run{run_sparse<Compression, cpu::compress>,
                          run_sparse<Decompression, cpu::decompress>,
                          run_sparse<Gathering, cpu::gather>, run_sparse<Pruning, cpu::prune>,
                          run_sparse<MetadataTiling, cpu::tile>};
  return sparse(op, arguments, run);
}

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CPU, m) {
  tcgemm::ops::register_dense<tcgemm::ops::product>(m);
  tcgemm::ops::register_quantize<tcgemm::ops::quantized>(m);
  tcgemm::ops::register_prepare<tcgemm::ops::prepared>(m);
  tcgemm::ops::register_sparse<tcgemm::ops::sparse_result>(m);
}
