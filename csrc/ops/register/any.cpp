// The functions for every device without a backend: the operators that answer questions, and those
// that compute, which throw the reason why they cannot.
#include "ops/register/register.h"

namespace tcgemm::ops {
namespace {

constexpr Backend kNone{.target = Target::none};

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CompositeExplicitAutograd, m) {
  tcgemm::ops::register_all<tcgemm::ops::kNone>(m);
}
