// Counts those that ask for batch invariance, in all threads of the process.
#include "ops/product/batch_invariant.h"

#include <atomic>
#include <string>

#include "ops/json.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

std::atomic<int> asking{0};

}  // namespace

bool is_batch_invariant() { return asking.load(std::memory_order_relaxed) > 0; }

// Adds to the number of those that ask for it, and answers with this number.
Results batch_invariant(const Call& call) {
  StackReader reader(call.stack);
  const int change = int(reader.integer());
  return text_result(std::to_string(asking.fetch_add(change) + change));
}

}  // namespace tcgemm::ops
