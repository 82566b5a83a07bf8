// Launches an ActivationBackward on a stream. CUDA builds only.
#pragma once

#include <cstddef>

#include "core/activation_backward.h"
#include "core/params.h"

namespace tcgemm::launch {

// The parameters, with the partition of the rows, and without a workspace.
ActivationBackwardParams activation_backward_params(const ActivationBackward& task, int device);

// Bytes of workspace that activation_backward needs.
std::size_t activation_backward_workspace(const ActivationBackwardParams& params);

// The call is asynchronous: it allocates nothing and does not synchronise. The device must be
// current. Throws std::runtime_error.
void activation_backward(ActivationBackwardParams params, Activation activation, void* workspace,
                         int device, void* stream);

}  // namespace tcgemm::launch
