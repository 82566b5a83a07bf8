// Registers the functions of the table of operators for one device.
#pragma once

#include <torch/csrc/stable/library.h>

#include <iterator>
#include <string>
#include <utility>

#include "ops/operators.h"
#include "ops/torch_error.h"

namespace tcgemm::ops {

// A function in the dispatcher's calling convention. The results replace the arguments.
template <const Backend& backend, int row, Overload overload>
void boxed(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  constexpr const Operator& op = kOperators[row];
  const ReadTorchErrors reads;
  Results results = op.function({op, overload, backend, stack});
  for (TensorHandle& result : results)
    if (result) *stack++ = reinterpret_cast<std::uint64_t>(result.release());
}

template <const Backend& backend, int row, Overload overload>
void register_overload(torch::stable::detail::StableLibrary& library, const char* suffix) {
  constexpr const Operator& op = kOperators[row];
  if constexpr (op.has(overload) && (!op.has(kQuestion) || backend.target == Target::none))
    library.impl((std::string(op.name) + suffix).c_str(), boxed<backend, row, overload>);
}

template <const Backend& backend>
void register_all(torch::stable::detail::StableLibrary& library) {
  [&]<int... row>(std::integer_sequence<int, row...>) {
    (register_overload<backend, row, Overload::plain>(library, ""), ...);
    (register_overload<backend, row, Overload::out>(library, ".out"), ...);
    (register_overload<backend, row, Overload::with_z>(library, ".with_z"), ...);
  }(std::make_integer_sequence<int, std::size(kOperators)>());
}

}  // namespace tcgemm::ops
