// Fills and clears the table of tcgemm.tune: plan/tuned.h.
#include <string>

#include "ops/json.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"
#include "plan/tuned.h"

namespace tcgemm::ops {
Results set_tuned(const Call& call) {
  StackReader reader(call.stack);
  const std::string device = reader.string();
  const std::string product = reader.string();
  const std::string choice = reader.string();
  bool is_row = true;
  if (device.empty())
    plan::clear_tuned();
  else
    is_row = plan::set_tuned(device, product, choice);
  return text_result(to_json(is_row));
}

}  // namespace tcgemm::ops
