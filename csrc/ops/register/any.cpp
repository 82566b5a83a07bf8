// The kernels for every device: the operators that describe, and those that compute where no
// backend does, which throw the reason.
#include "ops/describe/build_info.h"
#include "ops/describe/catalog_query.h"
#include "ops/describe/explain.h"
#include "ops/describe/plan_query.h"
#include "ops/json.h"
#include "ops/passes/activation_backward.h"
#include "ops/passes/pack_weight.h"
#include "ops/passes/prepare.h"
#include "ops/passes/quantize.h"
#include "ops/passes/sparse.h"
#include "ops/product/batch_invariant.h"
#include "ops/product/dense.h"
#include "ops/product/tuned.h"

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
  register_prepare<Target::none, nullptr>(m);
  register_sparse<Target::none, kNoSparseBackend>(m);
  register_describe<no_device>(m);
  m.impl("build_info", build_info_kernel);
  register_catalog(m);
  register_plan(m);
  register_batch_invariant(m);
  register_tuned(m);
}
