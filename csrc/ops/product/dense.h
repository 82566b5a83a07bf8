// The dense operators. Each checks its arguments, allocates the result, and calls a backend. One
// function serves them all; a backend registers itself for the dispatch key that it implements.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "ops/arguments.h"
#include "ops/check/check.h"
#include "ops/product/batch.h"

namespace tcgemm::ops {

// Computes every problem of the batch on the device of operand a.
using GemmBackend = void (*)(const BatchedProblem& batched, const CheckedGemm& checked,
                             const Arguments& arguments);

struct GemmResults {
  TensorHandle out;   // null if the caller gave one
  TensorHandle z;     // the argument of the activation; of calls with_z only
  TensorHandle amax;  // where returns_amax(op): f32, zero dimensions
};

// Target::none throws before it calls `backend`, which may then be null. with_z: the call has an
// activation, and the result includes its argument.
GemmResults gemm(Op op, const Arguments& arguments, Target target, GemmBackend backend,
                 bool with_z = false);

// A kernel in the dispatcher's calling convention.
template <Op op, bool out, Target target, GemmBackend backend>
void gemm_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  GemmResults results = gemm(op, unbox(parameters(op), out, stack), target, backend);
  if constexpr (!out) stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
  if constexpr (returns_amax(op))
    stack[1] = reinterpret_cast<std::uint64_t>(results.amax.release());
}

// The kernel of an .with_z overload, which has the arguments of the operator.
template <Op op, Target target, GemmBackend backend>
void gemm_with_z_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  GemmResults results = gemm(op, unbox(parameters(op), false, stack), target, backend, true);
  stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
  stack[1] = reinterpret_cast<std::uint64_t>(results.z.release());
}

// A product of int4 operands, whose parameters are others than those of `op`.
template <Op op, const ParameterList& parameters, bool out, Target target, GemmBackend backend>
void int4_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments = unbox(parameters, out, stack);
  if (!arguments.types) arguments.types.emplace();
  GemmResults results = gemm(op, arguments, target, backend);
  if constexpr (!out) stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
  if constexpr (returns_amax(op))
    stack[1] = reinterpret_cast<std::uint64_t>(results.amax.release());
}

// The product of a layer. `constant`: the kernel before it does not write the weight, which is b.
template <Op op, const ParameterList& parameters, bool constant, Target target, GemmBackend backend>
void layer_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments = unbox(parameters, false, stack);
  arguments.constant_weight = constant;
  GemmResults results = gemm(op, arguments, target, backend);
  stack[0] = reinterpret_cast<std::uint64_t>(results.out.release());
}

template <Target target, GemmBackend backend>
void register_gemm(torch::stable::detail::StableLibrary& library) {
  library.impl("mm", gemm_kernel<Op::mm, false, target, backend>);
  library.impl("mm.out", gemm_kernel<Op::mm, true, target, backend>);
  library.impl("mm.with_z", gemm_with_z_kernel<Op::mm, target, backend>);
  library.impl("bmm", gemm_kernel<Op::bmm, false, target, backend>);
  library.impl("bmm.out", gemm_kernel<Op::bmm, true, target, backend>);
  library.impl("bmm.with_z", gemm_with_z_kernel<Op::bmm, target, backend>);
  library.impl("matmul", gemm_kernel<Op::matmul, false, target, backend>);
  library.impl("matmul.out", gemm_kernel<Op::matmul, true, target, backend>);
  library.impl("matmul.with_z", gemm_with_z_kernel<Op::matmul, target, backend>);
  library.impl("addmm", gemm_kernel<Op::addmm, false, target, backend>);
  library.impl("addmm.out", gemm_kernel<Op::addmm, true, target, backend>);
  library.impl("addmm.with_z", gemm_with_z_kernel<Op::addmm, target, backend>);
  library.impl("baddbmm", gemm_kernel<Op::baddbmm, false, target, backend>);
  library.impl("baddbmm.out", gemm_kernel<Op::baddbmm, true, target, backend>);
  library.impl("baddbmm.with_z", gemm_with_z_kernel<Op::baddbmm, target, backend>);
  library.impl("linear", gemm_kernel<Op::linear, false, target, backend>);
  library.impl("linear.out", gemm_kernel<Op::linear, true, target, backend>);
  library.impl("linear.with_z", gemm_with_z_kernel<Op::linear, target, backend>);
  library.impl("_gemm", gemm_kernel<Op::gemm, false, target, backend>);
  library.impl("_gemm.out", gemm_kernel<Op::gemm, true, target, backend>);
  library.impl("_linear24", layer_kernel<Op::linear, schemas::kLinear24, false, target, backend>);
  library.impl("_constant_linear",
               layer_kernel<Op::linear, schemas::kConstantLinear, true, target, backend>);
  library.impl("_constant_linear24",
               layer_kernel<Op::linear, schemas::kLinear24, true, target, backend>);
  library.impl("_constant_scaled_mm",
               layer_kernel<Op::scaled_mm, schemas::kScaled, true, target, backend>);
  library.impl("scaled_mm", gemm_kernel<Op::scaled_mm, false, target, backend>);
  library.impl("scaled_mm.out", gemm_kernel<Op::scaled_mm, true, target, backend>);
  library.impl("scaled_mm.with_z", gemm_with_z_kernel<Op::scaled_mm, target, backend>);
  library.impl("packed_mm", gemm_kernel<Op::packed_mm, false, target, backend>);
  library.impl("packed_mm.out", gemm_kernel<Op::packed_mm, true, target, backend>);
  library.impl("packed_mm.with_z", gemm_with_z_kernel<Op::packed_mm, target, backend>);
  library.impl("packed_mm_amax", gemm_kernel<Op::packed_mm_amax, false, target, backend>);
  library.impl("scaled_mm_amax", gemm_kernel<Op::scaled_mm_amax, false, target, backend>);
  library.impl("_int4_mm", int4_kernel<Op::scaled_mm, schemas::kInt4, false, target, backend>);
  library.impl("_int4_mm.out", int4_kernel<Op::scaled_mm, schemas::kInt4, true, target, backend>);
  library.impl("_binary_mm", gemm_kernel<Op::binary_mm, false, target, backend>);
  library.impl("_binary_mm.out", gemm_kernel<Op::binary_mm, true, target, backend>);
  library.impl("_int4_mm_amax",
               int4_kernel<Op::scaled_mm_amax, schemas::kInt4, false, target, backend>);
}

}  // namespace tcgemm::ops
