// Selects the kernel that sums integers along k.
#include "kernels/passes/sums.cuh"

#include <algorithm>

#include "kernels/kernels.h"

namespace tcgemm::kernels {

const void* sums(const SumParams& params) {
  if (params.source.dtype == DType::b1)
    return reinterpret_cast<const void*>(&passes::sum_along_k<passes::BitAdder>);
  static_assert(are_all({DType::b1, DType::s4, DType::u4}, is_subbyte));
  return is_int4(params.source.dtype)
             ? reinterpret_cast<const void*>(&passes::sum_along_k<passes::Int4Adder>)
             : reinterpret_cast<const void*>(&passes::sum_along_k<passes::ByteAdder>);
}

int sum_blocks(const SumParams& params) {
  return static_cast<int>(std::min<std::int64_t>(passes::sum_units(params), 2147483647));
}

}  // namespace tcgemm::kernels
