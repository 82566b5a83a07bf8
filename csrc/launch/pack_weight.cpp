// Packing -> PackWeightParams -> one kernel.
#include "launch/pack_weight.h"

#include <cuda_runtime.h>

#include "kernels/pack_weight.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {

void pack_weight(const Packing& request, int device, void* stream) {
  const LaunchLabel label{-1, "pack_weight"};
  kernels::PackWeightParams params{};
  params.w = tensor_ref(request.w, request.n, request.k, 1);
  params.n = request.n;
  params.k = request.k;
  params.group = request.group;
  params.groups_in_row = request.groups_in_row();
  params.row_bytes = request.row_bytes();
  params.lanes = pack_lanes(request.group);
  // A lane stores kPackElements codes: 4 or 8 bytes.
  params.vector_codes = params.row_bytes % bits(request.rules.format) == 0;
  params.rules = request.rules;
  params.book = request.book;
  params.global_scale = request.global_scale;
  params.codes = request.codes;
  params.scales = request.scales;
  params.zero_points = request.zero_points;
  choose_device(device, label);
  launch_pass(kernels::pack_weight(params), &params, kernels::pack_weight_blocks(params),
              kernels::kPackWeightThreads, device, stream, label);
}

}  // namespace tcgemm::launch
