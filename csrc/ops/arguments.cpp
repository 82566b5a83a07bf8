// The options of products, and the arguments in the order of the parameters.
#include "ops/arguments.h"

#include <iterator>
#include <variant>

#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

using Member = std::variant<bool Arguments::*, double Arguments::*, std::int64_t Arguments::*,
                            std::string Arguments::*, std::optional<std::int32_t> Arguments::*,
                            std::optional<std::string> Arguments::*>;

// How schemas name the types of Member.
constexpr const char* kTypeNames[] = {"bool", "float", "int", "str", "ScalarType?", "str?"};
static_assert(std::size(kTypeNames) == std::variant_size_v<Member>);

struct OptionRow {
  Option option;
  const char* name;   // in the schema, where the parameter has no other
  const char* value;  // the default
  Member member;
};

constexpr OptionRow kOptions[] = {
    {Option::activation, "activation", "None", &Arguments::activation},
    {Option::alpha, "alpha", "1.0", &Arguments::alpha},
    {Option::beta, "beta", "1.0", &Arguments::beta},
    {Option::out_dtype, "out_dtype", "None", &Arguments::out_dtype},
    {Option::acc_dtype, "acc_dtype", "None", &Arguments::acc_dtype},
    {Option::precision, "precision", "None", &Arguments::precision},
    {Option::batch_invariant, "batch_invariant", "False", &Arguments::batch_invariant},
    {Option::one_slice, "one_slice", "False", &Arguments::one_slice},
    {Option::amax, "amax", "False", &Arguments::amax},
    {Option::device, "device", "None", &Arguments::device},
    {Option::kernel, "kernel", "None", &Arguments::kernel},
    {Option::packed_n, "n", "0", &Arguments::packed_n},
    {Option::weight_format, "weight_format", "\"int4\"", &Arguments::weight_format},
    {Option::group_size, "group_size", "0", &Arguments::group_size},
    {Option::weight_zeros, "zeros", "\"none\"", &Arguments::weight_zeros},
    {Option::constant_b, "constant_b", "False", &Arguments::constant_b},
    {Option::types, "types", "None", &Arguments::types},
    {Option::k, "k", "-1", &Arguments::k},
    {Option::operation, "operation", "None", &Arguments::operation},
    {Option::accumulate, "accumulate", "False", &Arguments::accumulate}};

static_assert([] {
  for (int i = 0; i < static_cast<int>(std::size(kOptions)); ++i)
    if (kOptions[i].option != static_cast<Option>(i)) return false;
  return true;
}());

const OptionRow& row(Option option) { return kOptions[static_cast<int>(option)]; }

std::string declaration(const Parameter& parameter) {
  if (parameter.kind == Parameter::Kind::keywords) return "*";
  const bool is_option = parameter.kind == Parameter::Kind::option;
  const OptionRow& option = row(parameter.option);
  const std::string name = parameter.name ? parameter.name
                           : is_option    ? option.name
                                          : tcgemm::name(parameter.slot);
  if (parameter.kind == Parameter::Kind::tensor) return "Tensor " + name;
  if (parameter.kind == Parameter::Kind::optional_tensor) return "Tensor? " + name + "=None";
  return join(kTypeNames[option.member.index()], " ", name, "=", option.value);
}

void read(StackReader& reader, bool& value) { value = reader.flag(); }
void read(StackReader& reader, double& value) { value = reader.real(); }
void read(StackReader& reader, std::int64_t& value) { value = reader.integer(); }
void read(StackReader& reader, std::string& value) { value = reader.string(); }
void read(StackReader& reader, std::optional<std::int32_t>& value) {
  value = reader.optional_dtype();
}
void read(StackReader& reader, std::optional<std::string>& value) {
  value = reader.optional_string();
}

}  // namespace

std::string schema(const ParameterList& parameters) {
  std::string text;
  for (const Parameter& parameter : parameters)
    text += (text.empty() ? "" : ", ") + declaration(parameter);
  return text;
}

Arguments unbox(const Call& call) {
  StackReader reader(call.stack);
  Arguments arguments;
  for (const Parameter& parameter : *call.op.parameters) {
    switch (parameter.kind) {
      case Parameter::Kind::tensor: arguments[parameter.slot] = reader.tensor(); break;
      case Parameter::Kind::optional_tensor:
        arguments[parameter.slot] = reader.optional_tensor();
        break;
      case Parameter::Kind::option:
        std::visit([&](auto member) { read(reader, arguments.*member); },
                   row(parameter.option).member);
        break;
      case Parameter::Kind::keywords: break;
    }
  }
  if (call.overload == Overload::out) arguments[Slot::out] = reader.tensor();
  if (call.op.types && !arguments.types) arguments.types = call.op.types;
  return arguments;
}

}  // namespace tcgemm::ops
