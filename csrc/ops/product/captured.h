// The tensors that products in captured CUDA graphs read in place of a weight: device orders, terms
// and the values of 2:4 weights. A graph does not own them: their owner asks before it frees one.
#pragma once

#include "core/problem.h"

namespace tcgemm::ops {

// Has the problem such tensors?
bool reads_second_form(const Problem& problem);
// A graph that is being captured reads them.
void note_captured(const Problem& problem);

}  // namespace tcgemm::ops
