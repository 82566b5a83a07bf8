// The accumulator and the results of a GEMM, by the dtype of operand a.
#pragma once

#include "core/dtype.h"

namespace tcgemm {

// The rules as a table; the first dtype of a result is the default:
//
//   operands         accumulator         result
//   f16, bf16, f32   f32 (f16 also f16)  as the operands, f16, bf16, f32, e4m3, e5m2
//   f64              f64                 f64
//   e4m3, e5m2       f32                 bf16, f16, f32, e4m3, e5m2
//   s8, u8, s4, u4   s32                 s32, f16, bf16, f32, s8
//   b1               s32                 s32

constexpr DType default_accumulator(DType operand) {
  if (operand == DType::f64) return DType::f64;
  return is_integer(operand) ? DType::s32 : DType::f32;
}

constexpr bool can_accumulate(DType operand, DType accumulator) {
  return accumulator == default_accumulator(operand) ||
         (operand == DType::f16 && accumulator == DType::f16);
}

constexpr DType default_result(DType operand) {
  if (is_fp8(operand)) return DType::bf16;
  return is_integer(operand) ? DType::s32 : operand;
}

constexpr bool can_return(DType operand, DType result) {
  if (operand == DType::f64 || result == DType::f64) return operand == result;
  if (operand == DType::b1) return result == DType::s32;
  if (result == DType::f16 || result == DType::bf16 || result == DType::f32) return true;
  return is_integer(operand) ? result == DType::s32 || result == DType::s8 : is_fp8(result);
}

// Can a GEMM return it with fewer than 32 bits? Such values are rounded, and packed in registers.
constexpr bool is_narrow_result(DType result) {
  for (int operand = 0; operand < kDTypes; ++operand)
    if (bits(result) < 32 && can_return(DType(operand), result)) return true;
  return false;
}

}  // namespace tcgemm
