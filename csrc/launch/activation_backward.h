// Launches an ActivationBackward on a stream. CUDA builds only.
#pragma once

#include <cstddef>

#include "core/activation_backward.h"

namespace tcgemm::launch {

// Bytes of workspace that activation_backward needs.
std::size_t activation_backward_workspace(const ActivationBackward& task, int device);

// The call is asynchronous: it allocates nothing and does not synchronise. The device must be
// current. Throws std::runtime_error.
void activation_backward(const ActivationBackward& task, void* workspace, int device, void* stream);

}  // namespace tcgemm::launch
