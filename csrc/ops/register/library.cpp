// Defines the schema of every operator and overload. An `.out` overload returns nothing, since an
// operator must not return what it mutates; the Python function returns `out`.
#include <torch/csrc/stable/library.h>

#include <string>

#include "ops/arguments.h"
#include "ops/operators.h"

namespace tcgemm::ops {
namespace {

std::string schema(const Operator& op, Overload overload) {
  const std::string arguments = schema(*op.parameters);
  if (overload == Overload::out) return ".out(" + arguments + ", Tensor(a!) out) -> ()";
  if (overload == Overload::with_z) return ".with_z(" + arguments + ") -> (Tensor, Tensor)";
  return "(" + arguments + ") -> " + (op.has(kAmax) ? "(Tensor, Tensor)" : "Tensor");
}

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY(tcgemm, m) {
  using namespace tcgemm::ops;
  for (const Operator& op : kOperators) {
    if (op.schema) m.def((std::string(op.name) + op.schema).c_str());
    for (const Overload overload : {Overload::plain, Overload::out, Overload::with_z})
      if (op.parameters && op.has(overload)) m.def((op.name + schema(op, overload)).c_str());
  }
}
