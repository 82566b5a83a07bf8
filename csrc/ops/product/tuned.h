// The operator that fills the table of tcgemm.tune: plan/tuned.h.
#pragma once

#include <torch/csrc/stable/library.h>

namespace tcgemm::ops {

void register_tuned(torch::stable::detail::StableLibrary& library);

}  // namespace tcgemm::ops
