// The operators that answer about the catalog and the known GPUs. They need no tensors and no GPU.
#pragma once

#include <torch/csrc/stable/library.h>

namespace tcgemm::ops {

// Registers these operators:
//
//   _catalog      the configs of kCatalog, the rows of kInstructions, and the known GPUs
//   _known_device the known GPU that a driver's name, capability and SM count identify
//   _device_rates the rates of a GPU as the driver reports it, known or not
//   _code         whose code of a build a GPU runs
void register_catalog(torch::stable::detail::StableLibrary& library);

}  // namespace tcgemm::ops
