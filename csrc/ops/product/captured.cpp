#include "ops/product/captured.h"

#include <cstdint>
#include <mutex>
#include <unordered_set>

#include "ops/json.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

constexpr SlotSet kForms{Slot::packed_b, Slot::terms_b, Slot::sparse_b};

std::mutex mutex;
std::unordered_set<std::uintptr_t> addresses;

}  // namespace

bool reads_second_form(const Problem& problem) { return problem.has_any(kForms); }

void note_captured(const Problem& problem) {
  const std::lock_guard lock(mutex);
  for (const Slot slot : {Slot::packed_b, Slot::terms_b, Slot::b})
    if (problem.has(slot)) addresses.insert(problem[slot].address);
}

// Does a captured graph read the tensor at this address? `forget`: it is another tensor from now
// on, or no such graph is left.
Results captured(const Call& call) {
  StackReader reader(call.stack);
  const auto address = std::uintptr_t(reader.integer());
  const bool forget = reader.flag();
  const std::lock_guard lock(mutex);
  const bool found = addresses.contains(address);
  if (forget) addresses.erase(address);
  return text_result(to_json(found));
}

}  // namespace tcgemm::ops
