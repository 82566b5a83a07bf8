// Launches a Plan on a stream: its passes, then its kernels. CUDA builds only.
#pragma once

#include <cstddef>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::launch {

// The properties of GPU `index`; the driver is queried once. Throws std::runtime_error if there is
// no such GPU.
const Device& device(int index);

// Is a CUDA graph captured on the stream now?
bool is_capturing(void* stream);

// Does the library have every kernel of a row? It has, unless its units were linked wrongly.
bool is_linked(std::size_t row);

// `workspace` has plan.workspace bytes, 256-byte aligned, on the same device, which must be
// current. The call is asynchronous: it allocates nothing and does not synchronise. Throws
// std::runtime_error.
void launch(const Problem& problem, const Plan& plan, void* workspace, int device, void* stream);

}  // namespace tcgemm::launch
