// What this library is, for people and for the Python package.
#pragma once

#include <string>

namespace tcgemm::ops {

// JSON: version, cuda (null in a CPU build), arches, code (compute capability of a GPU -> the
// architecture whose code it runs), kernels (names of the catalog's rows in this build),
// torch_target, compiler.
std::string build_info();

}  // namespace tcgemm::ops
