// The parts of a stage with a packed weight (producer.cuh).
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/shared_storage.cuh"
#include "tile/packed_reader.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
__device__ inline tile::PackedBlock packed_block(const SharedStorage<kConfig>& shared,
                                                 std::uint32_t stage) {
  return {stage, stage + TmaProducer<kConfig>::kMetadataOffset, shared.code_pairs()};
}

}  // namespace tcgemm::sm90
