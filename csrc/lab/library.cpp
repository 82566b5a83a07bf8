// The C functions that tcgemm/lab/ladder/ calls, and the checks of sizes that the steps share.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "lab/ladder.h"

namespace tcgemm::ladder {

bool takes(Call& call, int m, int n, int k) { return takes_at_most(call, m, n, k, 0, 0, 0); }

bool takes_at_most(Call& call, int m, int n, int k, int largest_m, int largest_n, int largest_k) {
  const int multiples[] = {m, n, k}, largest[] = {largest_m, largest_n, largest_k};
  const int sizes[] = {call.m, call.n, call.k};
  std::memcpy(call.multiples, multiples, sizeof(multiples));
  std::memcpy(call.largest, largest, sizeof(largest));
  for (int i = 0; i < 3; ++i)
    if (largest[i] && sizes[i] > largest[i])
      std::snprintf(call.error, sizeof(call.error), "%c is %d, but %s takes at most %d", "MNK"[i],
                    sizes[i], call.step, largest[i]);
    else if (sizes[i] <= 0 || sizes[i] % multiples[i] != 0)
      std::snprintf(call.error, sizeof(call.error), "%c is %d, but %s takes multiples of %d",
                    "MNK"[i], sizes[i], call.step, multiples[i]);
  const std::int64_t limit = std::int64_t{1} << 31, rows = call.m, columns = call.n, depth = call.k;
  if (rows * columns >= limit || rows * depth >= limit || depth * columns >= limit)
    std::snprintf(call.error, sizeof(call.error),
                  "a matrix of %s has 2^31 elements or more, which its indices cannot count",
                  call.step);
  return call.error[0] == 0 && !call.checks_only;
}

void no_such_variant(Call& call) {
  std::snprintf(call.error, sizeof(call.error), "%s has no variant with the parameters %d %d %d %d",
                call.step, call.parameters[0], call.parameters[1], call.parameters[2],
                call.parameters[3]);
}

}  // namespace tcgemm::ladder

#define TCGEMM_EXPORT extern "C" __attribute__((visibility("default")))

// The name of a step, or null after the last.
TCGEMM_EXPORT const char* tcgemm_lab_ladder_step(int index) {
  using tcgemm::ladder::kSteps;
  return index < int(std::size(kSteps)) ? kSteps[index].name : nullptr;
}

// The size of the structure below, so that a caller of another version stops.
TCGEMM_EXPORT int tcgemm_lab_ladder_size() { return int(sizeof(tcgemm::ladder::Call)); }

// 0, or 1 with a sentence in `error`.
TCGEMM_EXPORT int tcgemm_lab_ladder(tcgemm::ladder::Call* call) {
  call->error[0] = 0;
  for (const tcgemm::ladder::Step& step : tcgemm::ladder::kSteps)
    if (std::string_view(step.name) == call->step) {
      step.launch(*call);
      return call->error[0] != 0;
    }
  std::snprintf(call->error, sizeof(call->error), "there is no step %s", call->step);
  return 1;
}
