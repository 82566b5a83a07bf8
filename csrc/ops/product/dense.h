// The product of two operands that need not be tensors of torch's.
#pragma once

#include "ops/arguments.h"
#include "ops/operator.h"

namespace tcgemm::ops {

// Checks and computes alpha * (a @ b), where both are matrices or batches of them. Their views have
// the names that they have in errors.
TensorHandle multiply(const Call& call, const Arguments& arguments, const View& a, const View& b);

}  // namespace tcgemm::ops
