// The schema of every operator, in the order of the README. An `.out` overload returns nothing,
// since an operator must not return what it mutates; the Python function returns `out`. Tensors
// precede the `*`, since torch.library supports no autograd and no vmap for a keyword-only tensor.
#include <torch/csrc/stable/library.h>

#include <string>

namespace {

using torch::stable::detail::StableLibrary;

void define(StableLibrary& library, const std::string& name, const std::string& arguments) {
  library.def((name + "(" + arguments + ") -> Tensor").c_str());
  library.def((name + ".out(" + arguments + ", Tensor(a!) out) -> ()").c_str());
}

}  // namespace

STABLE_TORCH_LIBRARY(tcgemm, m) {
  const std::string types =
      "ScalarType? out_dtype=None, ScalarType? acc_dtype=None, str? precision=None";
  const std::string addends = "Tensor? bias=None, Tensor? residual=None";
  const std::string scales = "Tensor? scale_a=None, Tensor? scale_b=None";
  // Prepacked terms of b, and the metadata of 2:4 operands.
  const std::string operand_forms =
      ", Tensor? prepared_b=None, Tensor? sparse_a=None, Tensor? sparse_b=None";
  const std::string options = ", *, str? activation=None, float alpha=1.0, ";
  const std::string gemm = "Tensor a, Tensor b, " + addends + options + types;

  define(m, "mm", gemm);
  define(m, "bmm", gemm);
  define(m, "matmul", gemm);
  define(m, "addmm",
         "Tensor c, Tensor a, Tensor b, " + addends +
             ", *, float beta=1.0, float alpha=1.0, str? activation=None, " + types);
  define(m, "linear", "Tensor x, Tensor weight, " + addends + options + types);
  // The general GEMM that the others reduce to. It is private and has no autograd formula: calls
  // that need no gradient use it. The planner considers only configs whose name contains `kernel`.
  const std::string general = options + "float beta=1.0, " + types + ", str? ";
  define(m, "_gemm", "Tensor a, Tensor b, Tensor? c=None, " + addends + general + "kernel=None");
  // linear with a 2:4 weight and no other term, for calls that need no gradient. Each argument of
  // scaled_mm costs host time. `metadata` is passed on as sparse_b.
  m.def("_linear24(Tensor weight, Tensor metadata, Tensor x, Tensor? bias=None) -> Tensor");
  // The general GEMM with scales and zero points; every Python function calls it if it gets one of
  // them. scaled_mm_amax also returns amax, the largest magnitude before scale_out. `kernel_name`
  // filters configs: inductor cannot lower an operator with an argument `kernel`.
  const std::string scaled = "Tensor a, Tensor b, " + scales + ", Tensor? c=None, " + addends +
                             ", Tensor? zero_a=None, Tensor? zero_b=None, Tensor? scale_out=None" +
                             operand_forms + general + "kernel_name=None";
  define(m, "scaled_mm", scaled);
  m.def(("scaled_mm_amax(" + scaled + ") -> (Tensor, Tensor)").c_str());
  // prepare(w) returns prepared_b of GEMMs with b = w.t(): the split-FP32 terms that precision
  // "highest" multiplies on CUDA. It returns an empty tensor if the GEMM reads b itself.
  m.def("prepare(Tensor w) -> Tensor");
  m.def("quantize(Tensor x, ScalarType dtype, str granularity=\"tensor\") -> (Tensor, Tensor)");
  // 2:4 sparsity along k; core/sparse.h has the format. The third result of compress24 counts the
  // groups with too many nonzeros and has the index of the first of them. tile24 reorders metadata
  // for GEMMs on CUDA.
  m.def("compress24(Tensor w, str pattern, bool prune=False) -> (Tensor, Tensor, Tensor)");
  m.def("decompress24(Tensor values, Tensor metadata, int k, str pattern) -> Tensor");
  m.def("gather24(Tensor w, Tensor metadata, str pattern) -> Tensor");
  m.def("prune24(Tensor w, str pattern, bool transposable=False) -> Tensor");
  m.def("tile24(Tensor metadata, int k, str pattern, ScalarType dtype) -> Tensor");

  const std::string introspection =
      "(Tensor a, Tensor b, " + addends + ", " + scales + operand_forms + options + types +
      ", Tensor? out=None, str? device=None, str? kernel=None) -> str";
  m.def(("check_layout" + introspection).c_str());
  m.def(("explain" + introspection).c_str());
  m.def("build_info() -> str");
}
