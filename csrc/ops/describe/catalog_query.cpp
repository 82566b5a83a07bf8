// The questions about the catalog and the known GPUs, which need no tensors and no GPU:
//
//   _catalog      the configs of kCatalog, the rows of kInstructions, and the known GPUs
//   _known_device the known GPU that a driver's name, capability and SM count identify
//   _device_rates the rates of a GPU as the driver reports it, known or not
//   _code         whose code of a build a GPU runs
#include <string>
#include <string_view>

#include "catalog.h"
#include "core/code.h"
#include "core/device.h"
#include "isa/mma_instructions.h"
#include "ops/error.h"
#include "ops/json.h"
#include "ops/operators.h"
#include "ops/stack_reader.h"
#include "plan/explain_text.h"
#include "plan/operand.h"

namespace tcgemm::ops {
namespace {

JsonArray epilogue_paths(const GemmConfig& config) {
  JsonArray paths;
  for (int i = 0; i < kEpiloguePaths; ++i)
    if (config.has_kernel(kernel_path(EpiloguePath(i)))) paths.add(name(EpiloguePath(i)));
  return paths;
}

JsonArray catalog_rows() {
  JsonArray rows;
  for (const GemmConfig& config : kCatalog)
    rows.add(
        JsonObject()
            .add("name", name(config))
            .add("arch", name(config.arch))
            .add("input", name(config.input))
            .add("input_b", name(config.input_b))
            .add("accumulator", name(config.accumulator))
            .add("layout", name(config.layout))
            .add("mainloop", name(config.mainloop))
            .add("promoted", config.promotes())
            .add("block_scaled", config.block_scaled())
            .add("operand_source", config.is_rs() || config.is_tf32x2() ? "RS" : "SS")
            .add("terms", config.is_tf32x2() ? kTf32Terms : config.terms())
            .add("pingpong", config.pingpong)
            .add("gemv", config.is_gemv())
            .add("gemv_cluster", config.gemv_cluster())
            .add("weight_bits", config.weight_bits)
            .add("k_groups", config.k_groups())
            .add("sparse", config.is_sparse() ? name(pattern_of(config.input)) : "")
            .add("uses_tma", config.uses_tma())
            .add("k_major_only", plan::k_major_only(config.input))
            .add("interleaved_rows", config.interleaved_rows())
            .add("divides_k", config.divides_k())
            .add("sums_in_cluster", config.sums_in_cluster())
            .add("streams_k", config.streams_k())
            .add("columns_only", config.columns_only)
            .add("grouped", plan::groups_name(config.grouped))
            .add("shares_a", config.shares_a())
            .add("epilogue_paths", epilogue_paths(config))
            .add("tile", JsonArray().add(config.tile_m()).add(config.tile_n()).add(config.tile_k()))
            .add("stages", config.stages)
            .add("group_stages", config.group_stages())
            .add("threads", config.threads())
            .add("shared_bytes", config.shared_bytes()));
  return rows;
}

JsonArray instruction_rows() {
  JsonArray rows;
  for (const isa::Instruction& instruction : isa::kInstructions) {
    if (!instruction.in_kernels) continue;
    rows.add(JsonObject()
                 .add("family", name(instruction.kind))
                 .add("arch", name(instruction.arch))
                 .add("input", name(instruction.input))
                 .add("input_b", name(instruction.input_b))
                 .add("accumulator", name(instruction.accumulator))
                 .add("shape", JsonArray().add(instruction.m).add(instruction.n).add(instruction.k))
                 .add("n_step", instruction.n_step)
                 .add("mn_major", instruction.mn_major));
  }
  return rows;
}

JsonObject describe(const Device& device) {
  return JsonObject()
      .add("name", device.name)
      .add("compute_capability", device.compute_capability)
      .add("multiprocessors", device.multiprocessors)
      .add("l2_bytes", device.l2_bytes)
      .add("shared_bytes", device.shared_bytes)
      .add("memory_rate", device.memory_rate)
      .add("tensor_rate", device.tensor_rate)
      .add("f64_rate", device.f64_rate)
      .add("rates_from", name(device.source))
      .add("clock_mhz", device.hopper.clock)
      .add("l2_bytes_per_clock", device.hopper.l2_bytes_per_clock)
      .add("f64_clock_mhz", device.hopper.f64_clock)
      .add("clusters_of_three", device.hopper.clusters_of_three)
      .add("clusters_of_four", device.hopper.clusters_of_four)
      .add("code", name(code_on(device.compute_capability)).text);
}

// core/code.h reads the digits of an item as an int.
void check_arches(std::string_view arches) {
  int digits = 0;
  for (const char letter : arches) {
    if (letter == ',') digits = 0;
    if (letter >= '0' && letter <= '9') ++digits;
    if (digits > 8)
      fail("tcgemm: arches is '", arches,
           "'; expected architectures such as 8.0 or 9.0a, joined by commas.");
  }
}

}  // namespace

Results catalog(const Call&) {
  JsonArray devices;
  for (const KnownDevice& entry : kKnownDevices) devices.add(describe(entry.device));
  return text_result(JsonObject()
                         .add("configs", catalog_rows())
                         .add("instructions", instruction_rows())
                         .add("devices", devices)
                         .json());
}

Results known_device(const Call& call) {
  StackReader reader(call.stack);
  const std::string name = reader.string();
  const int capability = int(reader.integer());
  const int multiprocessors = int(reader.integer());
  const Device* device = find_known_device(name, capability, multiprocessors);
  return text_result(device ? describe(*device).json() : "null");
}

Results device_rates(const Call& call) {
  StackReader reader(call.stack);
  const std::string name = reader.string();
  Device device;
  device.name = name.c_str();
  device.compute_capability = int(reader.integer());
  device.multiprocessors = int(reader.integer());
  const double clock_khz = reader.real();
  const double memory_clock_khz = reader.real();
  set_rates(device, {clock_khz, memory_clock_khz, int(reader.integer())});
  return text_result(describe(device).json());
}

Results code(const Call& call) {
  StackReader reader(call.stack);
  const int capability = int(reader.integer());
  const std::string arches = reader.string();
  check_arches(arches);
  const Code runs = code_on(capability, arches.empty() ? kArches : std::string_view(arches));
  return text_result(json_string(name(runs).text));
}

}  // namespace tcgemm::ops
