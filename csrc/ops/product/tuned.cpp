// Fills and clears the table of tuned choices.
#include "ops/product/tuned.h"

#include <cstdint>
#include <string>

#include "ops/json.h"
#include "ops/stack_reader.h"
#include "plan/tuned.h"

namespace tcgemm::ops {
namespace {

void set_tuned_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  StackReader reader(stack);
  const std::string device = reader.string();
  const std::string product = reader.string();
  const std::string choice = reader.string();
  bool known = true;
  if (device.empty())
    plan::clear_tuned();
  else
    known = plan::set_tuned(device, product, choice);
  stack[0] = box_bytes(to_json(known));
}

}  // namespace

void register_tuned(torch::stable::detail::StableLibrary& library) {
  library.impl("_set_tuned", set_tuned_kernel);
}

}  // namespace tcgemm::ops
