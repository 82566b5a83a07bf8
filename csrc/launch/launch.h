// Runs a Plan on a stream: the prepare passes, then the kernel. CUDA builds only.
#pragma once

#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::launch {

// Facts about GPU `index`, asked of the driver once. Throws std::runtime_error where there is none.
const Device& device(int index);

// `workspace` has plan.workspace bytes, 256-byte aligned, on the same device. Asynchronous; nothing
// is allocated and nothing synchronises. The device must be current. Throws std::runtime_error.
void launch(const Problem& problem, const Plan& plan, void* workspace, int device, void* stream);

}  // namespace tcgemm::launch
