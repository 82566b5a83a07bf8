// The dense operators: check, allocate, hand to a backend. One function serves them all; a backend
// registers itself for the dispatch key that it implements.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "ops/arguments.h"
#include "ops/batch.h"
#include "ops/check.h"

namespace tcgemm::ops {

using Run = void (*)(const BatchedProblem& products, const CheckedGemm& checked,
                     const Arguments& arguments);

struct Results {
  TensorHandle out;   // null where the caller gave one
  TensorHandle amax;  // of scaled_mm_amax: f32, without dimensions
};

Results dense(Op op, const Arguments& arguments, Target target, Run run);

// What a backend does for one call.
using Product = Results (*)(Op op, const Arguments& arguments);

// A kernel in the dispatcher's calling convention.
template <Op op, bool out, Product product>
void product_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  Results results = product(op, unbox(op, out, stack));
  if constexpr (!out) stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
  if constexpr (op == Op::scaled_amax)
    stack[1] = reinterpret_cast<std::uint64_t>(results.amax.release());
}

template <Product product>
void linear24_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  Results results = product(Op::linear, unbox_linear24(stack));
  stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
}

template <Product product>
void register_dense(torch::stable::detail::StableLibrary& library) {
  library.impl("mm", product_kernel<Op::mm, false, product>);
  library.impl("mm.out", product_kernel<Op::mm, true, product>);
  library.impl("bmm", product_kernel<Op::bmm, false, product>);
  library.impl("bmm.out", product_kernel<Op::bmm, true, product>);
  library.impl("matmul", product_kernel<Op::matmul, false, product>);
  library.impl("matmul.out", product_kernel<Op::matmul, true, product>);
  library.impl("addmm", product_kernel<Op::addmm, false, product>);
  library.impl("addmm.out", product_kernel<Op::addmm, true, product>);
  library.impl("linear", product_kernel<Op::linear, false, product>);
  library.impl("linear.out", product_kernel<Op::linear, true, product>);
  library.impl("_gemm", product_kernel<Op::gemm, false, product>);
  library.impl("_gemm.out", product_kernel<Op::gemm, true, product>);
  library.impl("_linear24", linear24_kernel<product>);
  library.impl("scaled_mm", product_kernel<Op::scaled, false, product>);
  library.impl("scaled_mm.out", product_kernel<Op::scaled, true, product>);
  library.impl("scaled_mm_amax", product_kernel<Op::scaled_amax, false, product>);
}

}  // namespace tcgemm::ops
