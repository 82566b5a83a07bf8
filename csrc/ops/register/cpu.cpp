// The operators for CPU tensors. csrc/cpu computes them on torch's threads.
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>

#include "cpu/activation_backward.h"
#include "cpu/dense.h"
#include "cpu/orient.h"
#include "cpu/pack_weight.h"
#include "cpu/packed_weight.h"
#include "cpu/quantize.h"
#include "cpu/sparse.h"
#include "ops/product/batch.h"
#include "ops/product/strips.h"
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

void run_dense(const BatchedProblem& batched) {
  const cpu::Parallel parallel = torch_threads();
  for_each_problem(batched, [&](const Problem& problem) { cpu::gemm(problem, parallel); });
}

// At least 512 rows of an operand, as wide as the tiles of cpu/dense.cpp, or 2^21 elements, which
// stay in a cache.
constexpr std::int64_t kStripRows = 512, kStripElements = 1 << 21;

// Products with an operand, a or b, that is stored in another form. decode(first, rows, out,
// parallel) writes rows of a, or of b transposed, as a dense matrix of `like`'s dtype. The bits are
// those of a product with the whole dense matrix, because no sum crosses a strip.
template <class Decode>
void run_decoded(const BatchedProblem& batched, Slot slot, const View& like, const char* what,
                 Decode decode) {
  const Problem& p = batched.problem;
  const Axis axis = slot == Slot::a ? Axis::m : Axis::n;
  const std::int64_t extent = slot == Slot::a ? p.m : p.n;
  const std::int64_t wanted = std::max(kStripRows, kStripElements / std::max<std::int64_t>(1, p.k));
  const std::int64_t step = std::min(round_up(wanted, kStripRows), extent);
  const std::int64_t sizes[] = {step, p.k};
  const TensorHandle memory = allocate(what, {sizes, 2}, like.scalar_type, like);
  const Matrix rows{reinterpret_cast<std::uintptr_t>(data(memory)), like.dtype, p.k, 1};
  const cpu::Parallel parallel = torch_threads();
  for (std::int64_t first = 0; first < extent; first += step) {
    const std::int64_t count = std::min(step, extent - first);
    decode(first, count, data(memory), parallel);
    for_each_problem(batched, [&](const Problem& problem) {
      Problem strip = strip_of(problem, axis, first, count);
      strip.set(slot, slot == Slot::a ? rows : transposed(rows));
      for (const Slot stored : {Slot::sparse_a, Slot::sparse_b, Slot::packed_b})
        strip.reset(stored);
      strip.amax_continues |= first > 0;
      cpu::gemm(strip, parallel);
    });
  }
}

void run_packed(const BatchedProblem& batched, const View& a) {
  const Problem& p = batched.problem;
  run_decoded(batched, Slot::b, a, "rows of a packed weight as a dense matrix",
              [&](std::int64_t first, std::int64_t rows, void* out, const cpu::Parallel& parallel) {
                cpu::unpack(
                    {{p.n, p.k, p.packed}, p[Slot::packed_b].address, a.dtype, first, rows, out},
                    parallel);
              });
}

void run_sparse(const BatchedProblem& batched, const CheckedGemm& checked) {
  const Problem& p = batched.problem;
  const bool left = p.has(Slot::sparse_a);
  const Slot slot = left ? Slot::a : Slot::b;
  const View& metadata = checked[left ? Slot::sparse_a : Slot::sparse_b].view;
  const Matrix values = left ? Matrix{p[slot]} : transposed(Matrix{p[slot]});
  const Matrix codes{metadata.address, DType::u8, metadata.strides[0], metadata.strides[1]};
  const auto from = [](Matrix matrix, std::int64_t row) {
    matrix.address += bytes_of(row * matrix.stride_row, matrix.dtype);
    return matrix;
  };
  run_decoded(batched, slot, checked[slot].view, "rows of a sparse operand as a dense matrix",
              [&](std::int64_t first, std::int64_t rows, void* out, const cpu::Parallel& parallel) {
                cpu::decompress({from(values, first), from(codes, first), rows, p.k,
                                 pattern_of(values.dtype), out},
                                parallel);
              });
}

// Writes zeros in place of the result and of z.
void write_zeros(Problem problem, const cpu::Parallel& parallel) {
  for (const Slot slot : problem.operands.given() & kAddends) problem.reset(slot);
  problem.k = 0;
  problem.alpha = 1;
  problem.activation = Activation::none;
  cpu::gemm(without_z(problem), parallel);
  if (problem.has(Slot::z)) cpu::gemm(only_z(problem), parallel);
}

// Each group is a product of its own. `offs` is ascending and ends within the tensor.
void run_grouped(const Problem& p) {
  const cpu::Parallel parallel = torch_threads();
  const bool accumulates = p.has(Slot::c);
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < p.batch; ++g) {
    const std::int64_t end =
        *static_cast<const std::int32_t*>(cpu::element(p[Slot::offs], 0, g, 0));
    Problem group = strip_of(matrices_of(p, g, 1), p.grouped, first, end - first);
    group.reset(Slot::offs);
    group.grouped = Axis::one;
    if (group.k > 0 || p.grouped != Axis::k)
      cpu::gemm(group, parallel);
    else if (!accumulates)
      write_zeros(group, parallel);
    first = end;
  }
  if (accumulates || p.grouped == Axis::k) return;
  const std::int64_t extent = p.grouped == Axis::m ? p.m : p.n;
  Problem rest = strip_of(p, p.grouped, first, extent - first);
  rest.batch = 1;
  write_zeros(rest, parallel);
}

void run_gemm(const BatchedProblem& batched, const CheckedGemm& checked, const Arguments&) {
  const Problem& p = batched.problem;
  if (p.is_grouped())
    run_grouped(p);
  else if (p.has_packed_weight())
    run_packed(batched, checked[Slot::a].view);
  else if (p.is_sparse())
    run_sparse(batched, checked);
  else
    run_dense(batched);
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
