// Packs a weight on a GPU.
#pragma once

#include "core/pack_weight.h"

namespace tcgemm::launch {

void pack_weight(const Packing& packing, int device, void* stream);

}  // namespace tcgemm::launch
