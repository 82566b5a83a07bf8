// The switch of tcgemm.batch_invariant(), for the whole process: while it is on, every product is
// planned as with batch_invariant=True.
#pragma once

#include <torch/csrc/stable/library.h>

namespace tcgemm::ops {

bool is_batch_invariant();

// Registers _batch_invariant, which adds to the number of those that ask for it, and answers with
// this number.
void register_batch_invariant(torch::stable::detail::StableLibrary& library);

}  // namespace tcgemm::ops
