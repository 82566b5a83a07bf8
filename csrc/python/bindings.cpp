// tcgemm._catalog: the tables and the planner for Python, without torch and without tensors. The
// module is optional: only `tcgemm.info` and the tests use it, so the rest works without Python.h.
//
//   catalog()       one dict for each config of kCatalog
//   instructions()  one dict for each row of kInstructions
//   devices()       one dict for each GPU of kKnownDevices
//   known_device()  the known GPU that a driver's name, capability and SM count identify
//   device_rates()  the rates of a GPU as the driver reports it, known or not
//   plan(...)       Problem -> Plan, as a dict
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "catalog.h"
#include "core/code.h"
#include "core/device.h"
#include "core/dtype_rules.h"
#include "core/integer.h"
#include "core/plan.h"
#include "core/problem.h"
#include "isa/mma_instructions.h"
#include "plan/explain.h"
#include "plan/planner.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace tcgemm {
namespace {

using Strides = std::array<std::int64_t, 3>;  // batch, row, column; elements

std::string to_string(const ConfigName& name) { return std::string(std::string_view(name)); }

py::list catalog_rows() {
  py::list rows;
  for (const GemmConfig& config : kCatalog)
    rows.append(py::dict(
        "name"_a = to_string(name(config)), "arch"_a = name(config.arch),
        "input"_a = name(config.input), "input_b"_a = name(config.input_b),
        "accumulator"_a = name(config.accumulator), "layout"_a = name(config.layout),
        "promoted"_a = config.promotes(), "block_scaled"_a = config.block_scaled,
        "registers"_a = config.operand_source == OperandSource::RS, "parts"_a = config.terms,
        "sparse"_a = config.sparse ? name(pattern_of(config.input)) : "",
        "tile"_a = py::make_tuple(config.tile_m(), config.tile_n(), config.tile_k()),
        "stages"_a = config.stages, "threads"_a = config.threads(),
        "shared_bytes"_a = config.shared_bytes(), "built"_a = built(config)));
  return rows;
}

py::list instruction_rows() {
  py::list rows;
  for (const isa::Instruction& instruction : isa::kInstructions)
    rows.append(py::dict("family"_a = name(instruction.kind), "arch"_a = name(instruction.arch),
                         "input"_a = name(instruction.input),
                         "input_b"_a = name(instruction.input_b),
                         "accumulator"_a = name(instruction.accumulator),
                         "shape"_a = py::make_tuple(instruction.m, instruction.n, instruction.k),
                         "n_step"_a = instruction.n_step, "mn_major"_a = instruction.mn_major));
  return rows;
}

std::string code_of(int capability, const std::string& arches) {
  return name(code_on(capability, arches.empty() ? kArches : std::string_view(arches))).text;
}

py::dict describe(const Device& device) {
  return py::dict("name"_a = device.name, "compute_capability"_a = device.compute_capability,
                  "multiprocessors"_a = device.multiprocessors, "l2_bytes"_a = device.l2_bytes,
                  "shared_bytes"_a = device.shared_bytes, "memory_rate"_a = device.memory_rate,
                  "tensor_rate"_a = device.tensor_rate, "f64_rate"_a = device.f64_rate,
                  "rates_from"_a = name(device.source), "clock_mhz"_a = device.hopper.clock,
                  "l2_bytes_per_clock"_a = device.hopper.l2_bytes_per_clock,
                  "f64_clock_mhz"_a = device.hopper.f64_clock,
                  "code"_a = code_of(device.compute_capability, ""));
}

py::list device_rows() {
  py::list rows;
  for (const KnownDevice& known : kKnownDevices) rows.append(describe(known.device));
  return rows;
}

py::object known_device(const std::string& name, int capability, int multiprocessors) {
  const Device* device = find_known_device(name, capability, multiprocessors);
  return device ? py::object(describe(*device)) : py::none();
}

py::dict device_rates(const std::string& name, int capability, int multiprocessors,
                      double clock_khz, double memory_clock_khz, int memory_bus_bits) {
  Device device;
  device.name = name.c_str();
  device.compute_capability = capability;
  device.multiprocessors = multiprocessors;
  set_rates(device, {clock_khz, memory_clock_khz, memory_bus_bits});
  return describe(device);
}

DType parse_dtype(const std::string& text) {
  std::string names;
  for (int i = 0; i < kDTypes; ++i) {
    if (text == name(DType(i))) return DType(i);
    names += (names.empty() ? "" : ", ") + std::string(name(DType(i)));
  }
  throw std::runtime_error("tcgemm: no dtype is called '" + text + "'; expected one of " + names +
                           ".");
}

Layout parse_layout(const std::string& text) {
  for (int i = 0; i < kLayouts; ++i)
    if (text == name(Layout(i))) return Layout(i);
  throw std::runtime_error("tcgemm: no layout is called '" + text +
                           "'; expected TN, NN, TT or NT.");
}

// A matrix of rows x cols: contiguous along cols if `row_major`, else along rows, unless `strides`
// is set.
Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols, bool row_major,
              const std::optional<Strides>& strides, std::uintptr_t address) {
  if (strides) return {address, dtype, (*strides)[1], (*strides)[2], (*strides)[0]};
  return {address, dtype, row_major ? cols : 1, row_major ? 1 : rows, rows * cols};
}

// Sets the dtypes of the operands in memory, and the types that tensor cores multiply.
void set_types(Problem& problem, DType a, DType b, const std::string& precision) {
  const auto stored = [](DType type) { return type == DType::tf32 ? DType::f32 : type; };
  const auto input = [&](DType type) {
    if (type != DType::f32) return type;
    return precision == "high" ? DType::tf32 : precision == "medium" ? DType::bf16 : type;
  };
  problem[Slot::a].dtype = stored(a);
  problem[Slot::b].dtype = stored(b);
  problem.input_a = input(a);
  problem.input_b = input(b);
  problem.promote = is_fp8(a) && precision != "fast";
  problem.accumulator = default_accumulator(a);
  problem[Slot::out].dtype = default_result(stored(a));
}

// The scales of an operand from the name of their granularity. The operand is rows x k: m x k for
// a, n x k for b.
std::optional<Operand> parse_scale(const std::string& text, std::int64_t rows, std::int64_t k) {
  if (text.empty()) return std::nullopt;
  const std::int64_t blocks = ceil_div(k, kScaleBlock);
  const auto values = [&](std::int64_t row, std::int64_t col) {
    return Matrix{.dtype = DType::f32, .stride_row = row, .stride_col = col};
  };
  if (text == "tensor") return Operand{values(0, 0)};
  if (text == "row") return Operand{values(1, 0)};
  if (text == "1x128") return Operand{values(blocks, 1), 0, kScaleShift};
  if (text == "128x128") return Operand{values(blocks, 1), kScaleShift, kScaleShift};
  throw std::runtime_error("tcgemm: no scales are called '" + text +
                           "'; expected tensor, row, 1x128 or 128x128 of " + std::to_string(rows) +
                           " rows.");
}

// A contiguous tensor of the epilogue. A bias has one row, and zero points are vectors.
Matrix epilogue_matrix(const Problem& problem, Slot slot) {
  const OperandRow& row = operand_row(slot);
  if (row.dtypes == DTypeRule::zero_point)
    return {0, DType::s32, row.rows == Axis::m ? 1 : 0, row.cols == Axis::n ? 1 : 0, 0};
  if (row.dtypes != DTypeRule::addend) return {0, DType::f32, 0, 0, 0};
  const DType type = problem.accumulator == DType::f64        ? DType::f64
                     : problem[Slot::out].dtype == DType::s32 ? DType::s32
                                                              : DType::f32;
  if (slot == Slot::bias) return {0, type, 0, 1, 0};
  return {0, type, problem.n, 1, problem.m * problem.n};
}

// Adds one term of the epilogue by its name: a tensor or an activation.
void add_epilogue_term(Problem& problem, const std::string& term) {
  for (const Slot slot : kEpilogueTerms)
    if (term == name(slot)) return problem.set(slot, epilogue_matrix(problem, slot));
  for (int i = 0; i < kActivations; ++i) {
    problem.activation = Activation(i);
    if (term == name(problem.activation)) return;
  }
  throw std::runtime_error("tcgemm: nothing in the epilogue is called '" + term + "'.");
}

// Makes operand "a" or "b" 2:4 sparse. Its matrix is contiguous and has stored_k columns, unless
// its strides were passed (`has_strides`).
void set_sparse(Problem& problem, const std::string& operand, bool has_strides) {
  if (operand.empty()) return;
  const DType type = operand == "a" ? problem.input_a : problem.input_b;
  problem.sparse_k = value_columns(problem.k, pattern_of(type));
  if (operand == "a") {
    problem.set(Slot::sparse_a, Matrix{});
    Matrix& a = problem[Slot::a];
    if (!has_strides) a = {a.address, a.dtype, problem.sparse_k, 1, 0};
  } else if (operand == "b") {
    problem.set(Slot::sparse_b, Matrix{});
    Matrix& b = problem[Slot::b];
    if (!has_strides) b = {b.address, b.dtype, 1, problem.sparse_k, 0};
  } else {
    throw std::runtime_error("tcgemm: sparse is '" + operand + "'; expected a, b or nothing.");
  }
  problem.promote = false;
}

py::object to_dict(const std::optional<RepackPass>& pass) {
  if (!pass) return py::none();
  return py::dict("rows"_a = pass->rows, "k"_a = pass->k, "batch"_a = pass->batch,
                  "pitch"_a = pass->pitch, "offset"_a = pass->offset, "to"_a = name(pass->to));
}

py::object to_dict(const std::optional<SumPass>& pass) {
  if (!pass) return py::none();
  return py::dict("rows"_a = pass->rows, "k"_a = pass->k, "batch"_a = pass->batch,
                  "offset"_a = pass->offset);
}

py::object to_dict(const LaunchConfig& launch) {
  if (launch.config_index < 0) return py::none();
  return py::dict("kernel"_a = to_string(name(kCatalog[launch.config_index])),
                  "cluster"_a = launch.cluster, "grid"_a = launch.grid,
                  "group"_a = launch.raster_group, "tiles_m"_a = launch.tiles_m,
                  "tiles_n"_a = launch.tiles_n);
}

py::dict to_dict(const SplitFp32Pass& pass) {
  return py::dict("rows"_a = pass.rows, "k"_a = pass.k, "batch"_a = pass.batch,
                  "mn_major"_a = pass.mn_major, "pitch"_a = pass.pitch, "offset"_a = pass.offset,
                  "made_parts"_a = pass.prepacked.terms);
}

py::object to_dict(const std::optional<SplitFp32Plan>& split) {
  if (!split) return py::none();
  return py::dict("a"_a = to_dict(split->a), "b"_a = to_dict(split->b), "bf16"_a = split->bf16,
                  "other"_a = to_dict(split->alternative), "repair"_a = to_dict(split->recompute),
                  "verdict"_a = split->decision, "flags"_a = split->recompute_mask,
                  "flag_bytes"_a = split->recompute_mask_bytes);
}

py::dict plan_for(const std::string& device_name, const std::string& dtype, std::int64_t m,
                  std::int64_t n, std::int64_t k, std::int64_t batch, const std::string& layout,
                  const std::string& dtype_b, const std::string& precision,
                  const std::string& accumulator, const std::string& out_dtype,
                  const std::optional<Strides>& a, const std::optional<Strides>& b,
                  const std::optional<Strides>& out, std::uintptr_t a_address,
                  std::uintptr_t b_address, std::uintptr_t out_address, double alpha,
                  const std::string& scale_a, const std::string& scale_b,
                  const std::vector<std::string>& epilogue, int prepared_b,
                  const std::string& sparse, const std::string& kernel) {
  const Device* device = plan::find_device(device_name);
  if (device == nullptr)
    throw std::runtime_error("tcgemm: no device is called '" + device_name + "'; expected one of " +
                             plan::device_names() + ".");
  const Layout parsed_layout = parse_layout(layout);
  Problem problem;
  problem.batch = batch;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  const DType input = parse_dtype(dtype);
  problem.set(Slot::a, matrix(input, m, k, major_a(parsed_layout) == Major::K, a, a_address));
  problem.set(Slot::b, matrix(input, k, n, major_b(parsed_layout) == Major::MN, b, b_address));
  problem.set(Slot::out, matrix(input, m, n, true, out, out_address));
  set_types(problem, input, dtype_b.empty() ? input : parse_dtype(dtype_b), precision);
  if (!accumulator.empty()) problem.accumulator = parse_dtype(accumulator);
  if (!out_dtype.empty()) problem[Slot::out].dtype = parse_dtype(out_dtype);
  problem.alpha = alpha;
  if (const auto scale = parse_scale(scale_a, m, k)) problem.set(Slot::scale_a, *scale);
  if (const auto scale = parse_scale(scale_b, n, k)) problem.set(Slot::scale_b, transposed(*scale));
  for (const std::string& term : epilogue) add_epilogue_term(problem, term);
  if (prepared_b != 0) problem.set(Slot::prepacked_b, Matrix{});
  problem.prepacked_terms = prepared_b;
  set_sparse(problem, sparse, (sparse == "a" ? a : b).has_value());

  const Plan plan = plan::make_plan(problem, *device, kernel);
  py::dict fields;
  plan::for_each_field(plan::facts(problem, plan, *device),
                       [&](const char* name, const auto& value) { fields[name] = value; });
  if (plan.main.config_index < 0) fields["kernel"] = py::none();
  fields["tile"] = py::tuple(fields["tile"]);
  const py::dict passes(
      "group"_a = plan.main.raster_group, "tiles_m"_a = plan.main.tiles_m,
      "tiles_n"_a = plan.main.tiles_n, "prepare_a"_a = to_dict(plan.passes.repack_a),
      "prepare_b"_a = to_dict(plan.passes.repack_b), "sums_a"_a = to_dict(plan.passes.sums_a),
      "sums_b"_a = to_dict(plan.passes.sums_b), "split"_a = to_dict(plan.passes.split),
      "epilogue_path"_a = name(plan.main.epilogue_path), "vector_a"_a = plan.main.vector_a,
      "vector_b"_a = plan.main.vector_b, "explain"_a = plan::explain(problem, plan, *device),
      "check_layout"_a = plan::check_layout(problem, plan, *device));
  for (const auto& [name, value] : passes) fields[name] = value;
  return fields;
}

}  // namespace
}  // namespace tcgemm

PYBIND11_MODULE(_catalog, module) {
  module.doc() = "The catalog of GEMM configs and the planner; plain data, no tensors.";
  module.def("catalog", &tcgemm::catalog_rows,
             "Every config: name, types, tile, stages, shared memory.");
  module.def("instructions", &tcgemm::instruction_rows, "Every tensor-core instruction in use.");
  module.def("devices", &tcgemm::device_rows, "Every GPU that plans can be made for by name.");
  module.def("known_device", &tcgemm::known_device,
             "The known GPU with these properties, as the driver reports them, or None.", "name"_a,
             "capability"_a, "multiprocessors"_a);
  module.def(
      "device_rates", &tcgemm::device_rates,
      "What a GPU is planned with: the rates of a known GPU, or estimates from the clocks and "
      "the memory bus that the driver reports.",
      "name"_a, "capability"_a, "multiprocessors"_a, "clock_khz"_a, "memory_clock_khz"_a,
      "memory_bus_bits"_a);
  module.def("code", &tcgemm::code_of,
             "Whose code of a build a GPU of this compute capability (10 * major + minor) runs; "
             "arches: the build's, as build_info has them, joined by commas; empty: this one's.",
             "capability"_a, "arches"_a = "");
  module.def("plan", &tcgemm::plan_for,
             "The plan for one GEMM: sizes, a layout (TN, NN, TT, NT) or strides in elements "
             "(batch, row, column), byte addresses for their alignment, dtypes, precision, scales, "
             "terms of the epilogue, the number of prepacked split-FP32 terms of b (0: none), the "
             "2:4 operand, and a part of the config name.",
             "device"_a, "dtype"_a, "m"_a, "n"_a, "k"_a, py::kw_only(), "batch"_a = 1,
             "layout"_a = "TN", "dtype_b"_a = "", "precision"_a = "", "accumulator"_a = "",
             "out_dtype"_a = "", "a"_a = py::none(), "b"_a = py::none(), "out"_a = py::none(),
             "a_address"_a = 0, "b_address"_a = 0, "out_address"_a = 0, "alpha"_a = 1.0,
             "scale_a"_a = "", "scale_b"_a = "", "epilogue"_a = std::vector<std::string>{},
             "prepared_b"_a = 0, "sparse"_a = "", "kernel"_a = "");
}
