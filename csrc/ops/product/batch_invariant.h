// The switch of tcgemm.batch_invariant(), for the whole process: while it is on, every product is
// planned as with batch_invariant=True.
#pragma once

namespace tcgemm::ops {

bool is_batch_invariant();

}  // namespace tcgemm::ops
