// Writes the tables of the catalog, of the instructions and of the known GPUs as JSON.
#include "ops/describe/catalog_query.h"

#include <string>
#include <string_view>

#include "catalog.h"
#include "core/code.h"
#include "core/device.h"
#include "isa/mma_instructions.h"
#include "ops/error.h"
#include "ops/json.h"
#include "ops/stack_reader.h"
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
            .add("promoted", config.promotes())
            .add("block_scaled", config.block_scaled)
            .add("operand_source", name(config.operand_source))
            .add("terms", config.terms)
            .add("pingpong", config.pingpong)
            .add("mma_sync", config.mma_sync)
            .add("gemv", config.is_gemv())
            .add("gemv_cluster", config.gemv_cluster())
            .add("weight_bits", config.weight_bits)
            .add("k_groups", config.k_groups())
            .add("sparse", config.sparse ? name(pattern_of(config.input)) : "")
            .add("uses_tma", config.uses_tma())
            .add("k_major_only", plan::k_major_only(config.input))
            .add("interleaved_rows", config.interleaved_rows())
            .add("divides_k", config.divides_k())
            .add("sums_in_cluster", config.sums_in_cluster())
            .add("epilogue_paths", epilogue_paths(config))
            .add("tile", JsonArray().add(config.tile_m()).add(config.tile_n()).add(config.tile_k()))
            .add("stages", config.stages)
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

void catalog_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  JsonArray devices;
  for (const KnownDevice& known : kKnownDevices) devices.add(describe(known.device));
  stack[0] = box_bytes(JsonObject()
                           .add("configs", catalog_rows())
                           .add("instructions", instruction_rows())
                           .add("devices", devices)
                           .json());
}

void known_device_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  StackReader reader(stack);
  const std::string name = reader.string();
  const int capability = int(reader.integer());
  const int multiprocessors = int(reader.integer());
  const Device* device = find_known_device(name, capability, multiprocessors);
  stack[0] = box_bytes(device ? describe(*device).json() : "null");
}

void device_rates_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  StackReader reader(stack);
  const std::string name = reader.string();
  Device device;
  device.name = name.c_str();
  device.compute_capability = int(reader.integer());
  device.multiprocessors = int(reader.integer());
  const double clock_khz = reader.real();
  const double memory_clock_khz = reader.real();
  set_rates(device, {clock_khz, memory_clock_khz, int(reader.integer())});
  stack[0] = box_bytes(describe(device).json());
}

// core/code.h reads the digits of an item as an int.
void check_arches(std::string_view arches) {
  int digits = 0;
  for (const char letter : arches) {
    if (letter == ',') digits = 0;
    if (letter >= '0' && letter <= '9') ++digits;
    if (digits > 8)
      fail("tcgemm: arches is '", arches,
           "'; expected architectures such as 8.0 or 9.0a, joined by ", "commas.");
  }
}

void code_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  StackReader reader(stack);
  const int capability = int(reader.integer());
  const std::string arches = reader.string();
  check_arches(arches);
  const Code code = code_on(capability, arches.empty() ? kArches : std::string_view(arches));
  stack[0] = box_bytes(json_string(name(code).text));
}

}  // namespace

void register_catalog(torch::stable::detail::StableLibrary& library) {
  library.impl("_catalog", catalog_kernel);
  library.impl("_known_device", known_device_kernel);
  library.impl("_device_rates", device_rates_kernel);
  library.impl("_code", code_kernel);
}

}  // namespace tcgemm::ops
