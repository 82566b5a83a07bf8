// The functions for every device without a backend: the operators that answer questions, and those
// that compute. Those check meta tensors and return results without values, and throw the reason
// why they cannot compute on another device. The fakes of the Python package call them to check.
#include "ops/register/register.h"

namespace tcgemm::ops {
namespace {

template <class... Arguments>
void nothing(Arguments...) {}

constexpr Backend kNone{.target = Target::none,
                        .gemm = nothing,
                        .quantize = nothing,
                        .pack_weight = nothing,
                        .activation_backward = nothing,
                        .compress = nothing,
                        .decompress = nothing,
                        .gather = nothing,
                        .prune = nothing,
                        .tile = nothing};

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CompositeExplicitAutograd, m) {
  tcgemm::ops::register_all<tcgemm::ops::kNone>(m);
}
