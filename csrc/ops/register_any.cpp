// The kernels for every device: the operators that describe, and those that compute where no
// backend does, which throw the reason.
#include "ops/activation_backward.h"
#include "ops/batch_invariant.h"
#include "ops/build_info.h"
#include "ops/catalog_query.h"
#include "ops/dense.h"
#include "ops/explain.h"
#include "ops/json.h"
#include "ops/pack_weight.h"
#include "ops/plan_query.h"
#include "ops/prepack.h"
#include "ops/quantize.h"
#include "ops/sparse.h"
#include "ops/tuned.h"

namespace tcgemm::ops {
namespace {

// The tensors are on no GPU of this build, so explain falls back to its default GPU.
const Device* no_device(const Arguments&) { return nullptr; }

constexpr SparseBackend kNoSparseBackend{};

void build_info_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  stack[0] = box_bytes(build_info());
}

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CompositeExplicitAutograd, m) {
  using namespace tcgemm::ops;
  register_gemm<Target::none, nullptr>(m);
  register_quantize<Target::none, nullptr>(m);
  register_pack_weight<Target::none, nullptr>(m);
  register_activation_backward<Target::none, nullptr>(m);
  register_prepack<Target::none, nullptr>(m);
  register_sparse<Target::none, kNoSparseBackend>(m);
  register_describe<no_device>(m);
  m.impl("build_info", build_info_kernel);
  register_catalog(m);
  register_plan(m);
  register_batch_invariant(m);
  register_tuned(m);
}
