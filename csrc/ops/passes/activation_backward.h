// The sum over the rows of a gradient, for the operators of the backward.
#pragma once

#include "ops/operator.h"

namespace tcgemm::ops {

// The sum of g over all dimensions but the last. `dtype` is torch's number.
TensorHandle sum_of_rows(const Call& call, const TensorHandle& g, std::int32_t dtype);

}  // namespace tcgemm::ops
