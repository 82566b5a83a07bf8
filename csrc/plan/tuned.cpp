// The table of tuned choices, and the names of products.
#include "plan/tuned.h"

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "catalog.h"
#include "plan/explain_text.h"
#include "plan/operand.h"
#include "plan/select_kernel.h"

namespace tcgemm::plan {
namespace {

using Key = std::pair<std::string, std::string>;  // GPU, product

struct Table {
  std::shared_mutex mutex;
  std::map<Key, std::string> choices;
  std::atomic<std::uint64_t> generation{0};
};

Table& table() {
  static Table table;
  return table;
}

bool is_row(std::string_view text) {
  for (const GemmConfig& config : kCatalog)
    if (std::string_view(name(config)) == text) return true;
  return false;
}

// The major in which kernels read the operand. A matrix of one row has both.
Major read_major(const OperandLayout& layout) { return layout.any_major ? Major::K : layout.major; }

}  // namespace

std::string product_name(const Problem& problem) {
  const GemmOperand a = operand_a(problem), b = operand_b(problem);
  const OperandLayout of_a = analyze_layout(a), of_b = analyze_layout(b);
  if (problem.empty() || problem.is_grouped() || problem.k == 0 || problem.input_a == DType::f32 ||
      a.converts() || b.converts() || of_a.strided || of_b.strided)
    return "";
  std::string words = types(problem.input_a, problem.input_b, problem.accumulator);
  if (problem.promote) words += ", promoted";
  if (problem.block_scaled()) words += ", scales of blocks";
  if (problem.has(Slot::sparse_a)) words += ", a 2:4";
  if (problem.has(Slot::sparse_b)) words += ", b 2:4";
  if (problem.has_packed_weight())
    words += text(", b packed %s %d", name(problem.packed.format), int(problem.packed.group_size));
  words += std::string(", ") + name(layout_of(read_major(of_a), read_major(of_b)));
  if (!of_a.tma_readable()) words += ", a unaligned";
  if (!of_b.tma_readable()) words += ", b unaligned";
  words += text(", m %lld n %lld k %lld", Long(problem.m), Long(problem.n), Long(problem.k));
  return problem.batch == 1 ? words : words + text(" batch %lld", Long(problem.batch));
}

std::string tuned_device(const Device& device) {
  const Device* table_device =
      find_known_device(device.name, device.compute_capability, device.multiprocessors);
  return table_device ? table_device->name : device.name;
}

bool set_tuned(const std::string& device, const std::string& product, const std::string& filter) {
  const std::size_t at = filter.find('@'), slash = filter.find('/');
  if (product.empty() || at == std::string::npos || slash == std::string::npos || slash < at ||
      !is_row(std::string_view(filter).substr(0, at)))
    return false;
  const int slices = division_of(filter).slices;
  if (slices < 1 || slices > kMostSlices) return false;
  const std::unique_lock lock(table().mutex);
  table().choices[{device, product}] = filter;
  ++table().generation;
  return true;
}

void clear_tuned() {
  const std::unique_lock lock(table().mutex);
  if (table().choices.empty()) return;
  table().choices.clear();
  ++table().generation;
}

std::uint64_t tuned_generation() { return table().generation.load(std::memory_order_acquire); }

std::optional<std::string> find_tuned(const Problem& problem, const Device& device) {
  if (tuned_generation() == 0) return std::nullopt;
  const std::shared_lock lock(table().mutex);
  if (table().choices.empty()) return std::nullopt;
  const auto choice = table().choices.find({tuned_device(device), product_name(problem)});
  if (choice == table().choices.end()) return std::nullopt;
  return choice->second;
}

}  // namespace tcgemm::plan
