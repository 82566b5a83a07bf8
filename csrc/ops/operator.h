// A row of the table of operators (operators.h), and what its function gets.
#pragma once

#include <array>
#include <cstdint>

#include "core/activation_backward.h"
#include "core/device.h"
#include "core/pack_weight.h"
#include "core/problem.h"
#include "core/quantize.h"
#include "core/sparse.h"
#include "ops/parameters.h"
#include "ops/target.h"
#include "ops/tensor.h"

namespace tcgemm::ops {

struct Arguments;
struct BatchedProblem;
struct Call;
struct CheckedGemm;

// The shapes of a and b that a product takes. check_shapes.cpp has their rules.
enum class Shapes : std::uint8_t { any, matrices, batches, linear, at_least_matrices, grouped };

// An overload of a product. `out` writes into a tensor of the caller. The second result of `with_z`
// is the argument of the activation; the forward of a call with a gradient uses it.
enum class Overload : std::uint8_t { plain, out, with_z };

// What an operator has, as bits.
enum Feature : unsigned {
  kOut = 1 << 0,       // the overload .out
  kWithZ = 1 << 1,     // the overload .with_z
  kAmax = 1 << 2,      // a second result: the largest magnitude before scale_out
  kQuestion = 1 << 3,  // it computes nothing, so one function serves every device
};

// In the order of the schema; the tensors that it does not return are null.
using Results = std::array<TensorHandle, 3>;

struct Operator {
  const char* name;        // torch.ops.tcgemm.<name>
  const char* error_name;  // what its errors begin with
  Results (*function)(const Call& call);
  const ParameterList* parameters = nullptr;  // of a product
  const char* schema = nullptr;               // of any other operator, behind its name
  unsigned features = 0;
  Shapes shapes = Shapes::any;
  const char* types = nullptr;  // of sub-byte a and b, where the call gives none

  constexpr bool has(Feature feature) const { return features & feature; }
  constexpr bool has(Overload overload) const {
    switch (overload) {
      case Overload::plain: break;
      case Overload::out: return has(kOut);
      case Overload::with_z: return has(kWithZ);
    }
    return true;
  }
};

// The start of the errors of an operator: "tcgemm.mm".
constexpr const char* name(const Operator& op) { return op.error_name; }

// What computes on one device, a function for each task. The View is the tensor whose device it is.
// A null `prepare`: GEMMs read f32 operands as they are.
struct Backend {
  Target target;
  void (*gemm)(const BatchedProblem& batched, const CheckedGemm& checked,
               const Arguments&) = nullptr;
  void (*quantize)(const Quantization& task, const View& x) = nullptr;
  void (*pack_weight)(const Packing& task, const View& w) = nullptr;
  void (*activation_backward)(const ActivationBackward& task, const View& g) = nullptr;
  void (*compress)(const Compression& task, const View& w) = nullptr;
  void (*decompress)(const Decompression& task, const View& values) = nullptr;
  void (*gather)(const Gathering& task, const View& w) = nullptr;
  void (*prune)(const Pruning& task, const View& w) = nullptr;
  void (*tile)(const MetadataTiling& task, const View& metadata) = nullptr;
  // Splits operand b into `prepared`, which has room for its bf16 terms.
  void (*prepare)(const Problem& problem, const TensorHandle& prepared, const View& w) = nullptr;
  // The GPU that a call with these arguments runs on; null where there is none.
  const Device* (*device_of)(const Arguments& arguments) = nullptr;
};

// One call, with its arguments on the dispatcher's stack.
struct Call {
  const Operator& op;
  Overload overload;
  const Backend& backend;
  std::uint64_t* stack;
};

}  // namespace tcgemm::ops
