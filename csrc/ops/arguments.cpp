// Unboxes the dispatcher's stack in the order of the parameters in schema.h.
#include "ops/arguments.h"

#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

void read_option(Option option, StackReader& reader, Arguments& arguments) {
  switch (option) {
    case Option::activation:
      arguments.activation = reader.optional_string();
      break;
    case Option::alpha:
      arguments.alpha = reader.real();
      break;
    case Option::beta:
      arguments.beta = reader.real();
      break;
    case Option::out_dtype:
      arguments.out_dtype = reader.optional_dtype();
      break;
    case Option::acc_dtype:
      arguments.acc_dtype = reader.optional_dtype();
      break;
    case Option::precision:
      arguments.precision = reader.optional_string();
      break;
    case Option::batch_invariant:
      arguments.batch_invariant = reader.flag();
      break;
    case Option::amax:
      arguments.amax = reader.flag();
      break;
    case Option::device:
      arguments.device = reader.optional_string();
      break;
    case Option::kernel:
      arguments.kernel = reader.optional_string();
      break;
    case Option::packed_n:
      arguments.packed_n = reader.integer();
      break;
    case Option::weight_format:
      arguments.weight_format = reader.string();
      break;
    case Option::group_size:
      arguments.group_size = reader.integer();
      break;
    case Option::weight_zeros:
      arguments.weight_zeros = reader.string();
      break;
    case Option::constant_b:
      arguments.constant_weight = reader.flag();
      break;
    case Option::types:
      arguments.types = reader.optional_string();
      break;
    case Option::k:
      arguments.k = reader.integer();
      break;
    case Option::operation:
      arguments.operation = reader.optional_string();
      break;
  }
}

}  // namespace

Arguments unbox(const ParameterList& parameters, bool out, std::uint64_t* stack) {
  StackReader reader(stack);
  Arguments arguments;
  for (const Parameter& parameter : parameters) {
    switch (parameter.kind) {
      case Parameter::Kind::tensor:
        arguments[parameter.slot] = reader.tensor();
        break;
      case Parameter::Kind::optional_tensor:
        arguments[parameter.slot] = reader.optional_tensor();
        break;
      case Parameter::Kind::option:
        read_option(parameter.option, reader, arguments);
        break;
      case Parameter::Kind::keywords:
        break;
    }
  }
  if (out) arguments[Slot::out] = reader.tensor();
  return arguments;
}

QuantizeArguments unbox_quantize(bool given, std::uint64_t* stack) {
  StackReader reader(stack);
  QuantizeArguments arguments;
  arguments.x = reader.tensor();
  if (given) arguments.scale = reader.tensor();
  arguments.dtype = reader.dtype();
  arguments.granularity = reader.string();
  return arguments;
}

SparseArguments unbox_sparse(SparseOp op, std::uint64_t* stack) {
  StackReader reader(stack);
  SparseArguments arguments;
  if (op == SparseOp::compress || op == SparseOp::prune) {
    arguments.w = reader.tensor();
    arguments.pattern = reader.string();
    arguments.flag = reader.flag();
    return arguments;
  }
  if (op == SparseOp::gather) arguments.w = reader.tensor();
  if (op == SparseOp::decompress) arguments.values = reader.tensor();
  arguments.metadata = reader.tensor();
  if (op != SparseOp::gather) arguments.k = reader.integer();
  arguments.pattern = reader.string();
  if (op == SparseOp::tile) arguments.dtype = reader.dtype();
  return arguments;
}

TensorHandle unbox_tensor(std::uint64_t* stack) { return StackReader(stack).tensor(); }

}  // namespace tcgemm::ops
