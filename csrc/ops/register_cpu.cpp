// The operators for CPU tensors: csrc/cpu on torch's threads.
#include <torch/csrc/stable/c/shim.h>

#include "cpu/dense.h"
#include "cpu/quantize.h"
#include "ops/dense.h"
#include "ops/prepare.h"
#include "ops/quantize.h"

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

void run(const Products& products, const Geometry&, const Arguments&) {
  const cpu::Parallel parallel = torch_threads();
  for_each(products, [&](const Problem& problem) { cpu::gemm(problem, parallel); });
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

Handle prepared(const Handle& w) { return prepare(w, nullptr); }

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CPU, m) {
  tcgemm::ops::register_dense<tcgemm::ops::product>(m);
  tcgemm::ops::register_quantize<tcgemm::ops::quantized>(m);
  tcgemm::ops::register_prepare<tcgemm::ops::prepared>(m);
}
