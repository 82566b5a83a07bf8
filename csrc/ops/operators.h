// The operators of torch.ops.tcgemm: products, passes, questions. The schemas, the functions of
// each device (register/), the unboxing of arguments and the names in errors come from this table.
// A new operator is a row and its function.
#pragma once

#include "ops/operator.h"
#include "ops/parameters.h"

namespace tcgemm::ops {

// The functions of the rows, each in a file of product/, passes/ or describe/.
Results product(const Call& call);
Results prepare(const Call& call);
Results quantize(const Call& call);
Results quantize_scaled(const Call& call);
Results pack_weight(const Call& call);
Results sum_rows(const Call& call);
Results activation_backward(const Call& call);
Results product_backward(const Call& call);
Results compress24(const Call& call);
Results decompress24(const Call& call);
Results gather24(const Call& call);
Results prune24(const Call& call);
Results tile24(const Call& call);
Results check_layout(const Call& call);
Results explain(const Call& call);
Results build_info(const Call& call);
Results catalog(const Call& call);
Results batch_invariant(const Call& call);
Results captured(const Call& call);
Results set_tuned(const Call& call);
Results known_device(const Call& call);
Results device_rates(const Call& call);
Results code(const Call& call);

constexpr Operator product_row(const char* name, const char* error_name, Shapes shapes,
                               const ParameterList& parameters, unsigned features = 0,
                               const char* types = nullptr) {
  return {name, error_name, product, &parameters, nullptr, features, shapes, types};
}

constexpr Operator pass_row(const char* name, const char* error_name, const char* schema,
                            Results (*function)(const Call& call)) {
  return {name, error_name, function, nullptr, schema};
}

// A question about a call. The GPU of its tensors answers, so that every device has the function.
constexpr Operator description_row(const char* name, const char* error_name,
                                   Results (*function)(const Call& call)) {
  return {name, error_name, function, &schemas::kDescribe};
}

constexpr Operator question_row(const char* name, const char* schema,
                                Results (*function)(const Call& call)) {
  return {name, "tcgemm", function, nullptr, schema, kQuestion};
}

// The option constant_b of linear, _linear24, scaled_mm and packed_mm is private: no kernel that
// may still run writes b, so that b is loaded while that kernel runs.
//
// The option one_slice is private too: the gradient of a weight has it (Problem::one_slice).
//
// A function that every public function can call names none of them in its errors. Tensors precede
// the `*`, since torch.library supports no autograd and no vmap for a keyword-only tensor.
inline constexpr Operator kOperators[] = {
    product_row("mm", "tcgemm.mm", Shapes::matrices, schemas::kProduct, kOut | kWithZ),
    product_row("bmm", "tcgemm.bmm", Shapes::batches, schemas::kProduct, kOut | kWithZ),
    product_row("matmul", "tcgemm.matmul", Shapes::any, schemas::kProduct, kOut | kWithZ),
    product_row("addmm", "tcgemm.addmm", Shapes::matrices, schemas::kAddmm, kOut | kWithZ),
    product_row("baddbmm", "tcgemm.baddbmm", Shapes::batches, schemas::kAddmm, kOut | kWithZ),
    product_row("linear", "tcgemm.linear", Shapes::linear, schemas::kLinear, kOut | kWithZ),
    // The general GEMM that the others reduce to. It is private and has no autograd formula: calls
    // that need no gradient use it. The planner considers only configs whose name contains
    // `kernel`.
    product_row("_gemm", "tcgemm", Shapes::at_least_matrices, schemas::kGemm, kOut),
    // linear with a 2:4 weight and no other term, for calls that need no gradient. Each argument of
    // scaled_mm costs host time.
    product_row("_linear24", "tcgemm.linear", Shapes::linear, schemas::kLinear24),
    // The general GEMM with scales and zero points; every Python function calls it if it gets one
    // of them. `kernel_name` filters configs.
    product_row("scaled_mm", "tcgemm", Shapes::any, schemas::kScaled, kOut | kWithZ),
    product_row("scaled_mm_amax", "tcgemm", Shapes::any, schemas::kScaled, kAmax),
    // The general GEMM whose b is a packed weight of n rows, as core/packed_weight.h has it.
    product_row("packed_mm", "tcgemm", Shapes::any, schemas::kPacked, kOut | kWithZ),
    product_row("packed_mm_amax", "tcgemm", Shapes::any, schemas::kPacked, kAmax),
    // scaled_mm of uint8 tensors that hold two int4 in each byte, along K: the operands of
    // tcgemm.Int4Tensor. K, and every error, counts int4. The call must give the types.
    product_row("_int4_mm", "tcgemm", Shapes::any, schemas::kInt4, kOut, ""),
    product_row("_int4_mm_amax", "tcgemm", Shapes::any, schemas::kInt4, kAmax, ""),
    // The products of uint8 tensors that hold eight bits in each byte, along K, of which there are
    // k: the operands of tcgemm.BinaryTensor. `operation`: "and", "xor" or "pm1".
    product_row("_binary_mm", "tcgemm.binary_mm", Shapes::at_least_matrices, schemas::kBinary, kOut,
                "b1,b1"),
    // The products of groups of rows, of columns or of k, whose ends offs has; core/problem.h.
    product_row("grouped_mm", "tcgemm.grouped_mm", Shapes::grouped, schemas::kGrouped,
                kOut | kWithZ),

    // prepare(w) returns terms_b of GEMMs with b = w.t(): the split-FP32 terms that precision
    // "highest" multiplies on CUDA. It returns an empty tensor if the GEMM reads b itself.
    pass_row("prepare", "tcgemm.prepare", "(Tensor w) -> Tensor", prepare),
    // The second result of quantize is the scale, and of quantize.scaled amax.
    pass_row("quantize", "tcgemm.quantize",
             "(Tensor x, ScalarType dtype, str granularity=\"tensor\") -> (Tensor, Tensor)",
             quantize),
    pass_row("quantize.scaled", "tcgemm.quantize",
             "(Tensor x, Tensor scale, ScalarType dtype, str granularity=\"tensor\") -> "
             "(Tensor, Tensor)",
             quantize_scaled),
    // Codes, scales and zero points of a weight (core/pack_weight.h). `book` is the CodeBook of
    // "table4"; scales of e4m3 and e8m0 are bytes; without zero points the last result is empty.
    pass_row("_pack_weight", "tcgemm._pack_weight",
             "(Tensor w, Tensor? book, Tensor? global_scale, str format, int group_size, "
             "float limit, str scale_type, bool zero_points=False, bool least_error=False) -> "
             "(Tensor, Tensor, Tensor)",
             pack_weight),
    // The backward of an activation and of a bias; core/activation_backward.h has the formulas.
    // They are private, and differentiable no further: autograd.py calls them where nobody asks for
    // a second derivative. _sum_rows sums over all dimensions but the last. The second result of
    // _activation_backward is that sum of the first, or empty without `sum_dtype`.
    pass_row("_sum_rows", "tcgemm", "(Tensor g, ScalarType dtype) -> Tensor", sum_rows),
    pass_row("_activation_backward", "tcgemm",
             "(Tensor g, Tensor z, str activation, ScalarType dtype, "
             "ScalarType? sum_dtype=None) -> (Tensor, Tensor)",
             activation_backward),
    // The gradients of a product a (.., M, K) @ b (K, N) + bias from that of its result, g. One
    // call takes 5 us less than three. `weight`: b is (N, K). Without b there is no gradient of a,
    // without a no gradient of b, without `sum_dtype` no gradient of the bias: an empty tensor.
    pass_row("_product_backward", "tcgemm",
             "(Tensor g, Tensor? a, Tensor? b, bool weight, ScalarType? sum_dtype=None, "
             "float alpha=1.0, str? precision=None, bool batch_invariant=False) -> "
             "(Tensor, Tensor, Tensor)",
             product_backward),
    // 2:4 sparsity along k; core/sparse.h has the format. The third result of compress24 counts the
    // groups with too many nonzeros and has the index of the first of them. tile24 reorders
    // metadata for GEMMs on CUDA.
    pass_row("compress24", "tcgemm.compress24",
             "(Tensor w, str pattern, bool prune=False) -> (Tensor, Tensor, Tensor)", compress24),
    pass_row("decompress24", "tcgemm.decompress24",
             "(Tensor values, Tensor metadata, int k, str pattern) -> Tensor", decompress24),
    pass_row("gather24", "tcgemm.gather24", "(Tensor w, Tensor metadata, str pattern) -> Tensor",
             gather24),
    pass_row("prune24", "tcgemm.prune24",
             "(Tensor w, str pattern, bool transposable=False) -> Tensor", prune24),
    pass_row("tile24", "tcgemm.tile24",
             "(Tensor metadata, int k, str pattern, ScalarType dtype) -> Tensor", tile24),

    // These answer with JSON in a uint8 tensor: see json.h.
    description_row("check_layout", "tcgemm.check_layout", check_layout),
    description_row("explain", "tcgemm.explain", explain),
    question_row("build_info", "() -> Tensor", build_info),
    question_row("_catalog", "() -> Tensor", catalog),
    question_row("_batch_invariant", "(int change) -> Tensor", batch_invariant),
    question_row("_captured", "(int address, bool forget) -> Tensor", captured),
    // The table of tcgemm.tune, plan/tuned.h. `choice`: "row@cluster/slices"; the answer says
    // whether the row exists. An empty device clears the table.
    question_row("_set_tuned", "(str device, str product, str choice) -> Tensor", set_tuned),
    question_row("_known_device", "(str name, int capability, int multiprocessors) -> Tensor",
                 known_device),
    question_row("_device_rates",
                 "(str name, int capability, int multiprocessors, float clock_khz, "
                 "float memory_clock_khz, int memory_bus_bits) -> Tensor",
                 device_rates),
    // `arches`: a build's, as build_info has them, joined by commas; empty: this build's.
    question_row("_code", "(int capability, str arches=\"\") -> Tensor", code),
};

}  // namespace tcgemm::ops
