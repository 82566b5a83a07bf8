// Every operator's schema, in the order of the README. An `.out` overload returns nothing: an
// operator must not return what it mutates; the Python function returns `out`. Tensors stand before
// the `*`, since torch.library registers neither autograd nor vmap for a keyword-only tensor.
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
  // Other forms of an operand: its parts, made before; what its values are where it is sparse.
  const std::string forms =
      ", Tensor? prepared_b=None, Tensor? sparse_a=None, Tensor? sparse_b=None";
  const std::string options = ", *, str? activation=None, float alpha=1.0, ";
  const std::string product = "Tensor a, Tensor b, " + addends + options + types;

  define(m, "mm", product);
  define(m, "bmm", product);
  define(m, "matmul", product);
  define(m, "addmm",
         "Tensor c, Tensor a, Tensor b, " + addends +
             ", *, float beta=1.0, float alpha=1.0, str? activation=None, " + types);
  define(m, "linear", "Tensor x, Tensor weight, " + addends + options + types);
  // The general product that the others reduce to; private, without autograd, for calls that need
  // no gradient. `kernel` restricts the planner to rows of the catalog whose name contains it.
  const std::string general = options + "float beta=1.0, " + types + ", str? ";
  define(m, "_gemm", "Tensor a, Tensor b, Tensor? c=None, " + addends + general + "kernel=None");
  // linear with a sparse weight and nothing else, for calls that need no gradient: of the arguments
  // of scaled_mm each costs some of the host's time. Metadata are those of sparse_b.
  m.def("_linear24(Tensor weight, Tensor metadata, Tensor x, Tensor? bias=None) -> Tensor");
  // The general product with multipliers and zero points: what every Python function calls when it
  // is given one. The second returns amax as well, the largest magnitude before scale_out. The name
  // of a kernel is `kernel_name` here: inductor cannot lower an operator with an argument `kernel`.
  const std::string scaled = "Tensor a, Tensor b, " + scales + ", Tensor? c=None, " + addends +
                             ", Tensor? zero_a=None, Tensor? zero_b=None, Tensor? scale_out=None" +
                             forms + general + "kernel_name=None";
  define(m, "scaled_mm", scaled);
  m.def(("scaled_mm_amax(" + scaled + ") -> (Tensor, Tensor)").c_str());
  // What prepare makes of w is prepared_b of products with b = w.t(): the parts of b that precision
  // "highest" multiplies on CUDA; an empty tensor where it multiplies b itself.
  m.def("prepare(Tensor w) -> Tensor");
  m.def("quantize(Tensor x, ScalarType dtype, str granularity=\"tensor\") -> (Tensor, Tensor)");
  // Structured sparsity along k (core/sparse.h has the format). compress24 also tells how many
  // groups have too many elements that are not zero, and where the first begins; the tiles are the
  // metadata as products take it on CUDA.
  m.def("compress24(Tensor w, str pattern, bool prune=False) -> (Tensor, Tensor, Tensor)");
  m.def("decompress24(Tensor values, Tensor metadata, int k, str pattern) -> Tensor");
  m.def("gather24(Tensor w, Tensor metadata, str pattern) -> Tensor");
  m.def("prune24(Tensor w, str pattern, bool transposable=False) -> Tensor");
  m.def("tile24(Tensor metadata, int k, str pattern, ScalarType dtype) -> Tensor");

  const std::string question = "(Tensor a, Tensor b, " + addends + ", " + scales + forms + options +
                               types +
                               ", Tensor? out=None, str? device=None, str? kernel=None) -> str";
  m.def(("check_layout" + question).c_str());
  m.def(("explain" + question).c_str());
  m.def("build_info() -> str");
}
