// The operator build_info: the build's versions, architectures and kernels, as JSON.
#pragma once

#include <string>

namespace tcgemm::ops {

// Keys: version, cuda (null in a CPU build), arches, code (compute capability of a GPU -> the
// architecture whose code it runs), kernels (names of the configs in this build), torch_target,
// compiler.
std::string build_info();

}  // namespace tcgemm::ops
