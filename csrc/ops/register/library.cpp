// The schema of every operator: products, passes, questions. An `.out` overload returns nothing,
// since an operator must not return what it mutates; the Python function returns `out`. Tensors
// precede the `*`, since torch.library supports no autograd and no vmap for a keyword-only tensor.
#include <torch/csrc/stable/library.h>

#include <iterator>
#include <string>

#include "ops/schema.h"

namespace tcgemm::ops {
namespace {

using torch::stable::detail::StableLibrary;

// The declaration of an option, up to and behind its name.
struct OptionText {
  Option option;
  const char* type;
  const char* name;
  const char* value;
};

constexpr OptionText kOptionTexts[] = {
    {Option::activation, "str?", "activation", "None"},
    {Option::alpha, "float", "alpha", "1.0"},
    {Option::beta, "float", "beta", "1.0"},
    {Option::out_dtype, "ScalarType?", "out_dtype", "None"},
    {Option::acc_dtype, "ScalarType?", "acc_dtype", "None"},
    {Option::precision, "str?", "precision", "None"},
    {Option::batch_invariant, "bool", "batch_invariant", "False"},
    {Option::amax, "bool", "amax", "False"},
    {Option::device, "str?", "device", "None"},
    {Option::kernel, "str?", "kernel", "None"},
    {Option::packed_n, "int", "n", "0"},
    {Option::weight_format, "str", "weight_format", "\"int4\""},
    {Option::group_size, "int", "group_size", "0"},
    {Option::weight_zeros, "str", "zeros", "\"none\""},
    {Option::constant_b, "bool", "constant_b", "False"},
    {Option::types, "str?", "types", "None"},
    {Option::k, "int", "k", "-1"},
    {Option::operation, "str?", "operation", "None"}};

std::string declaration(const Parameter& parameter) {
  const std::string slot = parameter.name ? parameter.name : name(parameter.slot);
  if (parameter.kind == Parameter::Kind::keywords) return "*";
  if (parameter.kind == Parameter::Kind::tensor) return "Tensor " + slot;
  if (parameter.kind == Parameter::Kind::optional_tensor) return "Tensor? " + slot + "=None";
  const OptionText& text = kOptionTexts[static_cast<int>(parameter.option)];
  const std::string declared =
      std::string(text.type) + " " + (parameter.name ? parameter.name : text.name);
  return declared + "=" + text.value;
}

void define(StableLibrary& library, const std::string& name, const ParameterList& parameters) {
  const std::string arguments = schema(parameters);
  library.def((name + "(" + arguments + ") -> Tensor").c_str());
  library.def((name + ".out(" + arguments + ", Tensor(a!) out) -> ()").c_str());
}

// The overload whose second result is the argument of the activation. The forward of a call with a
// gradient uses it.
void define_with_z(StableLibrary& library, const std::string& name,
                   const ParameterList& parameters) {
  library.def((name + ".with_z(" + schema(parameters) + ") -> (Tensor, Tensor)").c_str());
}

}  // namespace

static_assert([] {
  for (int i = 0; i < static_cast<int>(std::size(kOptionTexts)); ++i)
    if (kOptionTexts[i].option != static_cast<Option>(i)) return false;
  return true;
}());

std::string schema(const ParameterList& parameters) {
  std::string text;
  for (const Parameter& parameter : parameters)
    text += (text.empty() ? "" : ", ") + declaration(parameter);
  return text;
}

}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY(tcgemm, m) {
  using namespace tcgemm::ops;
  define(m, "mm", parameters(Op::mm));
  define_with_z(m, "mm", parameters(Op::mm));
  define(m, "bmm", parameters(Op::bmm));
  define_with_z(m, "bmm", parameters(Op::bmm));
  define(m, "matmul", parameters(Op::matmul));
  define_with_z(m, "matmul", parameters(Op::matmul));
  define(m, "addmm", parameters(Op::addmm));
  define_with_z(m, "addmm", parameters(Op::addmm));
  define(m, "baddbmm", parameters(Op::baddbmm));
  define_with_z(m, "baddbmm", parameters(Op::baddbmm));
  define(m, "linear", parameters(Op::linear));
  define_with_z(m, "linear", parameters(Op::linear));
  // The general GEMM that the others reduce to. It is private and has no autograd formula: calls
  // that need no gradient use it. The planner considers only configs whose name contains `kernel`.
  define(m, "_gemm", parameters(Op::gemm));
  // linear with a 2:4 weight and no other term, for calls that need no gradient. Each argument of
  // scaled_mm costs host time.
  m.def(("_linear24(" + schema(schemas::kLinear24) + ") -> Tensor").c_str());
  // linear, _linear24 and scaled_mm for calls that need no gradient, of a layer whose weight b has
  // not changed since its last call: the kernel loads it while the kernel before may still run.
  m.def(("_constant_linear(" + schema(schemas::kConstantLinear) + ") -> Tensor").c_str());
  m.def(("_constant_linear24(" + schema(schemas::kLinear24) + ") -> Tensor").c_str());
  m.def(("_constant_scaled_mm(" + schema(schemas::kScaled) + ") -> Tensor").c_str());
  // The general GEMM with scales and zero points; every Python function calls it if it gets one of
  // them. scaled_mm_amax also returns amax, the largest magnitude before scale_out. `kernel_name`
  // filters configs.
  define(m, "scaled_mm", parameters(Op::scaled_mm));
  define_with_z(m, "scaled_mm", parameters(Op::scaled_mm));
  m.def(("scaled_mm_amax(" + schema(parameters(Op::scaled_mm_amax)) + ") -> (Tensor, Tensor)")
            .c_str());
  // The general GEMM whose b is a packed weight of n rows, as core/packed_weight.h has it. With
  // constant_b no kernel that may still run writes packed_b: it is loaded while that kernel runs.
  define(m, "packed_mm", parameters(Op::packed_mm));
  define_with_z(m, "packed_mm", parameters(Op::packed_mm));
  m.def(("packed_mm_amax(" + schema(parameters(Op::packed_mm_amax)) + ") -> (Tensor, Tensor)")
            .c_str());
  // scaled_mm of uint8 tensors that hold two int4 in each byte, along K: the operands of
  // tcgemm.Int4Tensor. K, and every error, counts int4.
  define(m, "_int4_mm", schemas::kInt4);
  m.def(("_int4_mm_amax(" + schema(schemas::kInt4) + ") -> (Tensor, Tensor)").c_str());
  // The products of uint8 tensors that hold eight bits in each byte, along K, of which there are k:
  // the operands of tcgemm.BinaryTensor. `operation`: "and", "xor" or "pm1".
  define(m, "_binary_mm", parameters(Op::binary_mm));
  // prepare(w) returns terms_b of GEMMs with b = w.t(): the split-FP32 terms that precision
  // "highest" multiplies on CUDA. It returns an empty tensor if the GEMM reads b itself.
  m.def("prepare(Tensor w) -> Tensor");
  // The second result of quantize is the scale, that of quantize.scaled is amax.
  m.def("quantize(Tensor x, ScalarType dtype, str granularity=\"tensor\") -> (Tensor, Tensor)");
  m.def(
      "quantize.scaled(Tensor x, Tensor scale, ScalarType dtype, str granularity=\"tensor\") -> "
      "(Tensor, Tensor)");
  // Codes, scales and zero points of a weight (core/pack_weight.h). `book` is the CodeBook of
  // "table4"; scales of e4m3 and e8m0 are bytes; without zero points the last result is empty.
  m.def(
      "_pack_weight(Tensor w, Tensor? book, Tensor? global_scale, str format, int group_size, "
      "float limit, str scale_type, bool zero_points=False, bool least_error=False) -> "
      "(Tensor, Tensor, Tensor)");
  // The backward of an activation and of a bias; core/activation_backward.h has the formulas. They
  // are private, and differentiable no further: autograd.py calls them where nobody asks for a
  // second derivative. _sum_rows sums over all dimensions but the last. The second result of
  // _activation_backward is that sum of the first, or empty without `sum_dtype`.
  m.def("_sum_rows(Tensor g, ScalarType dtype) -> Tensor");
  m.def(
      "_activation_backward(Tensor g, Tensor z, str activation, ScalarType dtype, "
      "ScalarType? sum_dtype=None) -> (Tensor, Tensor)");
  // 2:4 sparsity along k; core/sparse.h has the format. The third result of compress24 counts the
  // groups with too many nonzeros and has the index of the first of them. tile24 reorders metadata
  // for GEMMs on CUDA.
  m.def("compress24(Tensor w, str pattern, bool prune=False) -> (Tensor, Tensor, Tensor)");
  m.def("decompress24(Tensor values, Tensor metadata, int k, str pattern) -> Tensor");
  m.def("gather24(Tensor w, Tensor metadata, str pattern) -> Tensor");
  m.def("prune24(Tensor w, str pattern, bool transposable=False) -> Tensor");
  m.def("tile24(Tensor metadata, int k, str pattern, ScalarType dtype) -> Tensor");

  // These operators return JSON in a uint8 tensor: see json.h.
  m.def(("check_layout(" + schema(parameters(Op::check_layout)) + ") -> Tensor").c_str());
  m.def(("explain(" + schema(parameters(Op::explain)) + ") -> Tensor").c_str());
  m.def("build_info() -> Tensor");
  m.def("_catalog() -> Tensor");
  m.def("_batch_invariant(int change) -> Tensor");
  // The table of tcgemm.tune, plan/tuned.h. `choice`: "row@cluster/slices"; the answer says whether
  // the row exists. An empty device clears the table.
  m.def("_set_tuned(str device, str product, str choice) -> Tensor");
  m.def("_known_device(str name, int capability, int multiprocessors) -> Tensor");
  m.def(
      "_device_rates(str name, int capability, int multiprocessors, float clock_khz, "
      "float memory_clock_khz, int memory_bus_bits) -> Tensor");
  // `arches`: a build's, as build_info has them, joined by commas; empty: those of this build.
  m.def("_code(int capability, str arches=\"\") -> Tensor");
  // Sizes; a layout, or strides in elements (batch, row, column); byte addresses for the alignment;
  // dtypes; precision; scales; terms of the epilogue, joined by commas; the number of prepared
  // split-FP32 terms of b (0: none); the 2:4 operand; a part of the config name.
  m.def(
      "_plan(str device, str dtype, int m, int n, int k, *, int batch=1, str layout=\"TN\", "
      "str dtype_b=\"\", str precision=\"\", str accumulator=\"\", str out_dtype=\"\", "
      "int[]? a=None, int[]? b=None, int[]? out=None, int a_address=0, int b_address=0, "
      "int out_address=0, float alpha=1.0, str scale_a=\"\", str scale_b=\"\", str epilogue=\"\", "
      "int terms_b=0, str sparse=\"\", str kernel=\"\") -> Tensor");
}
