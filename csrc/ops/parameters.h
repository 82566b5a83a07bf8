// The parameters of the products, in order. Both the schema of an operator and the unboxing of its
// arguments (arguments.cpp) are made from these lists.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/operands.h"

namespace tcgemm::ops {

// The arguments that are no tensors. arguments.cpp has a row for each.
enum class Option : std::uint8_t {
  activation,
  alpha,
  beta,
  out_dtype,
  acc_dtype,
  precision,
  batch_invariant,
  one_slice,
  amax,
  device,
  kernel,
  packed_n,
  weight_format,
  group_size,
  weight_zeros,
  constant_b,
  types,
  k,
  operation,
  accumulate
};

struct Parameter {
  enum class Kind : std::uint8_t { tensor, optional_tensor, option, keywords };  // keywords: the *

  Kind kind = Kind::keywords;
  Slot slot = Slot::a;
  Option option = Option::activation;
  const char* name = nullptr;  // null: the name of the slot or option
};

constexpr Parameter tensor(Slot slot, const char* name = nullptr) {
  return {.kind = Parameter::Kind::tensor, .slot = slot, .name = name};
}
constexpr Parameter optional(Slot slot) {
  return {.kind = Parameter::Kind::optional_tensor, .slot = slot};
}
constexpr Parameter option(Option option, const char* name = nullptr) {
  return {.kind = Parameter::Kind::option, .option = option, .name = name};
}

class ParameterList {
 public:
  constexpr ParameterList(std::initializer_list<Parameter> parameters) {
    for (const Parameter& parameter : parameters) parameters_[size_++] = parameter;
  }
  constexpr ParameterList operator+(const ParameterList& other) const {
    ParameterList joined = *this;
    for (const Parameter& parameter : other) joined.parameters_[joined.size_++] = parameter;
    return joined;
  }
  constexpr const Parameter* begin() const { return parameters_; }
  constexpr const Parameter* end() const { return parameters_ + size_; }

 private:
  Parameter parameters_[48];
  int size_ = 0;
};

namespace schemas {

inline constexpr ParameterList kOperandsAB{tensor(Slot::a), tensor(Slot::b)};
inline constexpr ParameterList kAddendsOfAll{optional(Slot::bias), optional(Slot::residual)};
inline constexpr ParameterList kScalesOfOperands{optional(Slot::scale_a), optional(Slot::scale_b)};
inline constexpr ParameterList kOperandForms{optional(Slot::terms_b), optional(Slot::sparse_a),
                                             optional(Slot::sparse_b)};
inline constexpr ParameterList kOptions{Parameter{}, option(Option::activation),
                                        option(Option::alpha)};
inline constexpr ParameterList kTypes{option(Option::out_dtype), option(Option::acc_dtype),
                                      option(Option::precision), option(Option::batch_invariant),
                                      option(Option::one_slice)};

inline constexpr ParameterList kProduct = kOperandsAB + kAddendsOfAll + kOptions + kTypes;
inline constexpr ParameterList kLinear =
    ParameterList{tensor(Slot::a, "x"), tensor(Slot::b, "weight")} + kAddendsOfAll + kOptions +
    kTypes + ParameterList{option(Option::constant_b)};
// `metadata` is passed on as sparse_b.
inline constexpr ParameterList kLinear24{tensor(Slot::b, "weight"),
                                         tensor(Slot::sparse_b, "metadata"),
                                         tensor(Slot::a, "x"),
                                         optional(Slot::bias),
                                         Parameter{},
                                         option(Option::constant_b)};
inline constexpr ParameterList kAddmm =
    ParameterList{tensor(Slot::c)} + kOperandsAB + kAddendsOfAll +
    ParameterList{Parameter{}, option(Option::beta), option(Option::alpha),
                  option(Option::activation)} +
    kTypes;
inline constexpr ParameterList kGemm =
    kOperandsAB + ParameterList{optional(Slot::c)} + kAddendsOfAll + kOptions +
    ParameterList{option(Option::beta)} + kTypes + ParameterList{option(Option::kernel)};
// Inductor cannot lower an operator with an argument `kernel`.
inline constexpr ParameterList kScaled =
    kOperandsAB + kScalesOfOperands + ParameterList{optional(Slot::c)} + kAddendsOfAll +
    ParameterList{optional(Slot::zero_a), optional(Slot::zero_b), optional(Slot::scale_out)} +
    kOperandForms + kOptions + ParameterList{option(Option::beta)} + kTypes +
    ParameterList{option(Option::constant_b), option(Option::kernel, "kernel_name")};
inline constexpr ParameterList kPackedOptions{
    option(Option::packed_n, "n"), option(Option::weight_format), option(Option::group_size),
    option(Option::weight_zeros, "zeros")};
// b is a packed weight, of n rows. The other dimension is K of a.
inline constexpr ParameterList kPacked =
    ParameterList{tensor(Slot::a), tensor(Slot::packed_b), optional(Slot::c)} + kAddendsOfAll +
    ParameterList{optional(Slot::scale_out), Parameter{}} + kPackedOptions +
    ParameterList{option(Option::activation),
                  option(Option::alpha),
                  option(Option::beta),
                  option(Option::out_dtype),
                  option(Option::batch_invariant),
                  option(Option::constant_b),
                  option(Option::kernel, "kernel_name")};
// Sub-byte operands: `types` says of what, as "s4,u4".
inline constexpr ParameterList kInt4 =
    kOperandsAB + kScalesOfOperands + ParameterList{optional(Slot::c)} + kAddendsOfAll +
    ParameterList{optional(Slot::zero_a), optional(Slot::zero_b), optional(Slot::scale_out)} +
    kOptions + ParameterList{option(Option::beta)} + kTypes +
    ParameterList{option(Option::kernel, "kernel_name"), option(Option::types)};
inline constexpr ParameterList kBinary =
    kOperandsAB + ParameterList{Parameter{}, option(Option::k), option(Option::operation),
                                option(Option::kernel, "kernel_name")};
// `offs`: the ends of the groups.
inline constexpr ParameterList kGrouped =
    kOperandsAB + ParameterList{optional(Slot::offs)} + kAddendsOfAll + kOptions +
    ParameterList{option(Option::out_dtype), option(Option::precision),
                  option(Option::batch_invariant), option(Option::accumulate)};
inline constexpr ParameterList kDescribe =
    kOperandsAB + kAddendsOfAll + kScalesOfOperands +
    ParameterList{optional(Slot::c), optional(Slot::zero_a), optional(Slot::zero_b),
                  optional(Slot::scale_out)} +
    kOperandForms + ParameterList{optional(Slot::packed_b), optional(Slot::offs)} + kOptions +
    ParameterList{option(Option::beta)} + kTypes +
    ParameterList{option(Option::amax),      optional(Slot::out),       option(Option::device),
                  option(Option::kernel),    option(Option::types),     option(Option::k),
                  option(Option::operation), option(Option::accumulate)} +
    kPackedOptions;

}  // namespace schemas

}  // namespace tcgemm::ops
