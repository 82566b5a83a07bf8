// tcgemm._catalog: the tables and the planner for Python, without torch and without tensors.
// Optional: only `tcgemm.info` and the tests read it, so a machine without Python.h loses no more
// than those.
//
//   catalog()       one dict a row of kCatalog        devices()   one dict a row of kDevices
//   instructions()  one dict a row of kInstructions   plan(...)   Problem -> Plan, as a dict
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"
#include "isa/instructions.h"
#include "plan/planner.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace tcgemm {
namespace {

using Strides = std::array<std::int64_t, 3>;  // batch, row, column; elements

std::string text(const KernelName& name) { return std::string(std::string_view(name)); }

py::list catalog_rows() {
  py::list rows;
  for (const Kernel& kernel : kCatalog)
    rows.append(py::dict(
        "name"_a = text(name(kernel)), "arch"_a = name(kernel.arch), "input"_a = name(kernel.input),
        "accumulator"_a = name(kernel.accumulator), "layout"_a = name(kernel.layout),
        "tile"_a = py::make_tuple(kernel.tile_m(), kernel.tile_n(), kernel.tile_k()),
        "stages"_a = kernel.stages, "threads"_a = kernel.threads(),
        "shared_bytes"_a = kernel.shared_bytes(), "built"_a = built(kernel)));
  return rows;
}

py::list instruction_rows() {
  py::list rows;
  for (const isa::Instruction& row : isa::kInstructions)
    rows.append(py::dict("family"_a = name(row.family), "arch"_a = name(row.arch),
                         "input"_a = name(row.input), "accumulator"_a = name(row.accumulator),
                         "shape"_a = py::make_tuple(row.m, row.n, row.k), "n_step"_a = row.n_step,
                         "mn_major"_a = row.mn_major));
  return rows;
}

py::list device_rows() {
  py::list rows;
  for (const Device& device : kDevices)
    rows.append(py::dict("name"_a = device.name, "compute_capability"_a = device.compute_capability,
                         "multiprocessors"_a = device.multiprocessors,
                         "l2_bytes"_a = device.l2_bytes, "shared_bytes"_a = device.shared_bytes,
                         "memory_rate"_a = device.memory_rate,
                         "tensor_rate"_a = device.tensor_rate));
  return rows;
}

DType parse_dtype(const std::string& text) {
  for (int i = 0; i < kDTypes; ++i)
    if (text == name(DType(i))) return DType(i);
  throw std::runtime_error("tcgemm: no dtype is called '" + text +
                           "'; expected f16, bf16, f32 or f64.");
}

Layout parse_layout(const std::string& text) {
  for (int i = 0; i < kLayouts; ++i)
    if (text == name(Layout(i))) return Layout(i);
  throw std::runtime_error("tcgemm: no layout is called '" + text +
                           "'; expected TN, NN, TT or NT.");
}

// rows x cols, contiguous along `row_major ? cols : rows`, or with the strides that were given.
Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols, bool row_major,
              const std::optional<Strides>& strides, std::uintptr_t address) {
  if (strides) return {address, dtype, (*strides)[1], (*strides)[2], (*strides)[0]};
  return {address, dtype, row_major ? cols : 1, row_major ? 1 : rows, rows * cols};
}

py::object describe(const std::optional<Prepare>& pass) {
  if (!pass) return py::none();
  return py::dict("rows"_a = pass->rows, "k"_a = pass->k, "batch"_a = pass->batch,
                  "pitch"_a = pass->pitch, "offset"_a = pass->offset);
}

py::dict plan_for(const std::string& device_name, const std::string& dtype, std::int64_t m,
                  std::int64_t n, std::int64_t k, std::int64_t batch, const std::string& layout,
                  const std::string& accumulator, const std::string& out_dtype,
                  const std::optional<Strides>& a, const std::optional<Strides>& b,
                  const std::optional<Strides>& out, std::uintptr_t a_address,
                  std::uintptr_t b_address, std::uintptr_t out_address, double alpha,
                  const std::string& kernel) {
  const Device* device = plan::find_device(device_name);
  if (device == nullptr)
    throw std::runtime_error("tcgemm: no device is called '" + device_name + "'; expected one of " +
                             plan::device_names() + ".");
  const DType input = parse_dtype(dtype);
  const Layout letters = parse_layout(layout);
  const DType result = out_dtype.empty() ? input : parse_dtype(out_dtype);

  Problem problem;
  problem.batch = batch;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.a = matrix(input, m, k, major_a(letters) == Major::K, a, a_address);
  problem.b = matrix(input, k, n, major_b(letters) == Major::MN, b, b_address);
  problem.out = matrix(result, m, n, true, out, out_address);
  problem.accumulator = parse_dtype(accumulator);
  problem.alpha = alpha;

  const Plan made = plan::make_plan(problem, *device, kernel);
  py::object row = py::none();
  if (made.kernel >= 0) row = py::str(text(name(kCatalog[made.kernel])));
  return py::dict("kernel"_a = row, "transposed"_a = made.transposed, "cluster"_a = made.cluster,
                  "grid"_a = made.grid, "group"_a = made.group, "tiles_m"_a = made.tiles_m,
                  "tiles_n"_a = made.tiles_n, "prepare_a"_a = describe(made.prepare_a),
                  "prepare_b"_a = describe(made.prepare_b), "workspace"_a = made.workspace,
                  "store_tma"_a = made.store_tma, "microseconds"_a = made.microseconds,
                  "bytes"_a = made.bytes, "bound"_a = name(made.bound),
                  "explain"_a = plan::explain(problem, made, *device),
                  "check_layout"_a = plan::check_layout(problem, made, *device));
}

}  // namespace
}  // namespace tcgemm

PYBIND11_MODULE(_catalog, module) {
  module.doc() = "The catalog of kernels and the planner; plain data, no tensors.";
  module.def("catalog", &tcgemm::catalog_rows,
             "Every kernel: name, types, tile, stages, shared memory.");
  module.def("instructions", &tcgemm::instruction_rows, "Every tensor-core instruction in use.");
  module.def("devices", &tcgemm::device_rows, "Every GPU that plans can be made for by name.");
  module.def("plan", &tcgemm::plan_for,
             "The plan for one product: sizes, a layout (TN, NN, TT, NT) or strides in elements "
             "(batch, row, column), byte addresses for their alignment, and a filter of kernels.",
             "device"_a, "dtype"_a, "m"_a, "n"_a, "k"_a, py::kw_only(), "batch"_a = 1,
             "layout"_a = "TN", "accumulator"_a = "f32", "out_dtype"_a = "", "a"_a = py::none(),
             "b"_a = py::none(), "out"_a = py::none(), "a_address"_a = 0, "b_address"_a = 0,
             "out_address"_a = 0, "alpha"_a = 1.0, "kernel"_a = "");
}
