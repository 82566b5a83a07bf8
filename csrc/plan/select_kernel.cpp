// The search over the catalog, and the facts about its configs that are computed at compile time.
#include "plan/select_kernel.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <span>

#include "catalog.h"
#include "plan/explain_text.h"
#include "plan/memory.h"
#include "plan/store_path.h"

namespace tcgemm::plan {
namespace {

// The operation of a config, without its layout and tile, as one number.
constexpr std::uint32_t signature(DType a, DType b, DType accumulator, bool block_scaled,
                                  bool accurate_fp8, int terms, bool sparse, int weight_bits) {
  return std::uint32_t(a) | std::uint32_t(b) << 8 | std::uint32_t(accumulator) << 16 |
         std::uint32_t(block_scaled) << 24 | std::uint32_t(accurate_fp8) << 25 |
         std::uint32_t(terms) << 26 | std::uint32_t(sparse) << 28 |
         std::uint32_t(weight_bits / 4) << 29;
}

// The signature of every config, or kNotBuilt if TCGEMM_KERNELS leaves it out, or if
// plan/grouped.cpp alone takes it. Comparing names takes microseconds, so the compiler does it.
constexpr std::uint32_t kNotBuilt = ~0u;
constexpr auto kSignatures = [] {
  std::array<std::uint32_t, kCatalog.size()> signatures{};
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    const GemmConfig& config = kCatalog[i];
    signatures[i] = selected(config) && !config.is_grouped()
                        ? signature(config.input, config.input_b, config.accumulator,
                                    config.block_scaled(), config.has_accurate_fp8_sums(),
                                    config.terms(), config.is_sparse(), config.weight_bits)
                        : kNotBuilt;
  }
  return signatures;
}();

// What try_rows() reads of each row for each division of k.
struct RowFacts {
  std::int8_t gemv_cluster = 0;
  bool is_thin = false, divides_k = false, streams_k = false;
  std::uint16_t cluster_slices = 0;  // bit n: a cluster can add n slices
};
constexpr auto kRowFacts = [] {
  std::array<RowFacts, kCatalog.size()> facts{};
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    const GemmConfig& config = kCatalog[i];
    facts[i] = {std::int8_t(config.gemv_cluster()), config.is_thin(), config.divides_k(),
                config.streams_k()};
    for (int slices = 2; slices <= kMostClusterSlices; ++slices)
      facts[i].cluster_slices |= config.adds_in_cluster(slices) << slices;
  }
  return facts;
}();

// Can the kernel of a row divide k so?
bool divides(const RowFacts& row, Division division) {
  if (division.stream_k) return row.streams_k;
  if (division.slices <= 1) return true;
  if (!division.cluster_adds) return row.divides_k;
  return division.slices <= kMostClusterSlices && row.cluster_slices >> division.slices & 1;
}

// The rows by signature, and those of a signature in the order of the catalog.
constexpr auto kRowsBySignature = [] {
  std::array<std::uint16_t, kCatalog.size()> rows{};
  std::iota(rows.begin(), rows.end(), std::uint16_t(0));
  std::ranges::sort(rows, [](std::uint16_t x, std::uint16_t y) {
    return kSignatures[x] == kSignatures[y] ? x < y : kSignatures[x] < kSignatures[y];
  });
  return rows;
}();

std::span<const std::uint16_t> rows_of(std::uint32_t signature) {
  if (signature == kNotBuilt) return {};
  const auto found = std::ranges::equal_range(kRowsBySignature, signature, {},
                                              [](std::uint16_t row) { return kSignatures[row]; });
  return {found.begin(), found.end()};
}

// The signatures that compute the problem: one, or two if promotion is not required, because
// promoted sums are more accurate.
struct AcceptedSignatures {
  std::uint32_t unpromoted = kNotBuilt, promoted;

  explicit AcceptedSignatures(const Problem& problem) {
    // With K = 0 there is nothing to scale or to accumulate, so every kernel returns the right
    // zeros.
    const bool blocks = problem.k > 0 && problem.block_scaled();
    // f32 operands that are neither rounded nor split are multiplied as f64.
    const bool is_f64 = problem.input_a == DType::f32 && !problem.tf32x2;
    const DType accumulator = is_f64 ? DType::f64 : problem.accumulator;
    const auto with = [&](bool promotes) {
      return signature(problem.input_a, problem.input_b, accumulator, blocks, promotes,
                       problem.terms, problem.has(Slot::sparse_a),
                       problem.has_packed_weight() ? bits(problem.packed.format) : 0);
    };
    promoted = with(true);
    if (!blocks && problem.terms == 1 && !(problem.k > 0 && problem.promote))
      unpromoted = with(false);
    if (problem.batch_invariant && unpromoted != kNotBuilt) promoted = kNotBuilt;
  }
};

// Can a kernel of the layout load both operands, from their memory or after a repack pass?
bool can_load(const OrientedProblem& oriented, Layout layout) {
  const auto can = [](CandidateOperand input, bool may_copy, Major major) {
    return input.can_load(major) || (may_copy && major == Major::K);
  };
  return can(oriented.operands.a, oriented.may_copy_a, major_a(layout)) &&
         can(oriented.operands.b, oriented.may_copy_b, major_b(layout));
}

// So many rows that thin tiles fill the GPU.
bool suits_thin(const GemmConfig& config, const Problem& problem, const Device& device) {
  return problem.m >= config.tile_m() * device.multiprocessors;
}

// So few elements that GEMV kernels may have many tiles of rows.
bool is_small_result(const Problem& problem) {
  constexpr std::int64_t kMost = 1 << 16;
  return problem.batch == 1 && problem.m <= kMost && problem.n <= kMost &&
         problem.m * problem.n <= kMost;
}

// Is the kernel one for any small result? Those that add in f64 have few enough instructions with 8
// rows alone, and with a packed weight one tile of 16 rows is faster than two of 8, unless the
// result is a column of tiles.
bool suits_small_result(const GemmConfig& config, const Problem& problem) {
  if (config.accumulator == DType::f64) return config.gemv_rows == 8;
  return !config.has_packed_weight() || config.gemv_rows >= 16 || problem.m > kMostGemvRows ||
         problem.m <= config.tile_m() || problem.n <= config.tile_n();
}

// A small result, or one tile of rows and a block of k for each warp: else other kernels are as
// fast.
bool suits_gemv(const GemmConfig& config, const Problem& problem) {
  if (is_small_result(problem) && suits_small_result(config, problem))
    return problem.k >= config.tile_k();
  const bool is_one_tile = problem.m <= config.tile_m();
  const std::int64_t warps = config.threads() / 32 * config.gemv_cluster();
  return is_one_tile && problem.k >= warps * config.tile_k();
}

}  // namespace

std::string types(DType a, DType b, DType accumulator) {
  const std::string operands = a == b ? name(a) : std::string(name(a)) + " by " + name(b);
  return operands + " (accumulator " + name(accumulator) + ")";
}

std::string supported_products(const Code& code, bool sparse, bool grouped) {
  std::string supported;
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    const GemmConfig& config = kCatalog[row];
    if (!selected(config) || !holds(code, config.arch) || config.terms() > 1 ||
        config.is_sparse() != sparse || config.is_grouped() != grouped ||
        config.has_packed_weight())
      continue;
    const DType accumulator = config.input == DType::f32 ? DType::f32 : config.accumulator;
    const std::string entry = types(config.input, config.input_b, accumulator);
    if ((", " + supported + ",").find(", " + entry + ",") == std::string::npos)
      supported += (supported.empty() ? "" : ", ") + entry;
  }
  return supported;
}

// An RS kernel transposes a in registers, and stores a column-major result at full speed, as the
// kernels with EpiloguePath::columns do, whose sums of slices have rows. A GEMV kernel has few
// rows, and a thin one few columns.
bool gains_from_swap(const GemmConfig& config, const Problem& problem, Division division) {
  if (config.has_kernel(EpiloguePath::columns))
    return division.slices == 1 && store_path(config, problem) == StorePath::tma_columns;
  return config.is_rs() || config.is_gemv() || config.is_thin();
}

bool may_gain_from_swap(DType input) {
  static constexpr auto kMayGain = [] {
    std::array<bool, kDTypes> flags{};
    for (const GemmConfig& config : kCatalog)
      if (config.mainloop == Mainloop::rs || config.has_kernel(EpiloguePath::columns))
        flags[int(config.input)] = true;
    return flags;
  }();
  return kMayGain[int(input)];
}

bool may_be_gemv(const Problem& problem) {
  return std::min(problem.m, problem.n) <= kMostGemvRows || is_small_result(problem);
}

std::string_view without_orientation(std::string_view filter) {
  return filter.substr(0, filter.size() - (filter.ends_with(kSwapped) ? kSwapped.size() : 0));
}

std::string_view row_text(std::string_view filter) {
  filter = without_orientation(filter);
  return filter.substr(0, std::min(filter.find('@'), filter.find('/')));
}

bool names_columns_only(std::string_view filter, DType input) {
  const std::string_view row = row_text(filter);
  bool found = false;
  for (const GemmConfig& config : kCatalog) {
    if (row.empty() || config.input != input || !matches(name(config), row)) continue;
    if (!config.columns_only) return false;
    found = true;
  }
  return found;
}

Division division_of(std::string_view filter) {
  filter = without_orientation(filter);
  Division division;
  if (const std::size_t slash = filter.rfind('/'); slash != std::string_view::npos) {
    const std::string_view text = filter.substr(slash + 1);
    division.stream_k = text == kStreamK;
    division.slices = division.stream_k ? 1 : std::atoi(std::string(text).c_str());
    division.cluster_adds = filter.ends_with('c');
  }
  const std::string_view row = row_text(filter);
  if (row.ends_with("_gemv"))
    for (const GemmConfig& config : kCatalog)
      if (std::string_view(name(config)) == row) division.gemv_cluster = config.gemv_cluster();
  return division;
}

std::string_view cluster_text(std::string_view filter) {
  filter = without_orientation(filter);
  filter = filter.substr(0, filter.rfind('/'));
  const std::size_t at = filter.rfind('@');
  return at == std::string_view::npos ? std::string_view{} : filter.substr(at + 1);
}

AskedCluster cluster_of(std::string_view text) {
  for (const auto& [shape, searched] : kClusters)
    if (text == cluster_name(shape)) return shape;
  return std::nullopt;
}

Search::Search(const Device& device, std::string_view filter, double least_bytes,
               ConfigFilter config_filter)
    : device_(device),
      code_(planned_code(device.compute_capability)),
      filter_(filter),
      least_bytes_(least_bytes),
      config_filter_(config_filter),
      has_filter_(!filter.empty()),
      division_(division_of(filter)) {
  filter_ = without_orientation(filter_);
  filter_ = filter_.substr(0, filter_.rfind('/'));
  cluster_ = cluster_of(cluster_text(filter));
  if (cluster_) filter_ = filter_.substr(0, filter_.rfind('@'));
  if (!filter_.empty())
    for (const GemmConfig& config : kCatalog)
      names_one_row_ |= std::string_view(name(config)) == filter_;
  best.launch.microseconds = HUGE_VAL;
}

void Search::divide(Division division) {
  if (!has_filter_) division_ = division;
}

void Search::restart(Division division, double most_microseconds) {
  divide(division);
  best = {};
  best.launch.microseconds = most_microseconds;
}

Rows Search::rows_for(const OrientedProblem& oriented) const {
  constexpr std::size_t kUsual = 64;  // at least the kernels of an operation in one layout
  Rows rows;
  rows.reserve(kUsual);
  const AcceptedSignatures signatures(oriented.problem);
  for (const std::uint32_t signature : {signatures.unpromoted, signatures.promoted})
    for (const std::uint16_t row : rows_of(signature))
      if (may_compute(oriented, kCatalog[row]))
        rows.push_back({row, {kCatalog[row], oriented.problem, device_}});
  return rows;
}

bool Search::may_compute(const OrientedProblem& oriented, const GemmConfig& config) const {
  const Problem& problem = oriented.problem;
  if (!holds(code_, config.arch)) return false;
  if (config.uses_tma() && !can_load(oriented, config.layout)) return false;
  if (config.has_packed_weight() && !is_newest(config.arch)) return false;
  // FP8 sums of mma.sync have other bits than those of wgmma, which reads these operands as they
  // are. So the epilogue, which has a share in the time, must not decide between the two.
  const bool reads_both = problem.k > 0 && !oriented.may_copy_a && !oriented.may_copy_b;
  if (is_fp8(config.input) && reads_both && !is_newest(config.arch)) return false;
  if (!filter_.empty() && !is_wanted(config)) return false;
  if (config.has_packed_weight() &&
      !problem.has(config.is_gemv() ? Slot::packed_b : Slot::packed_a))
    return false;
  if (config.is_gemv() && !names_one_row_ && !suits_gemv(config, problem)) return false;
  if (config.is_thin() && !names_one_row_ && !suits_thin(config, problem, device_)) return false;
  return config_filter_ == nullptr || config_filter_(config);
}

void Search::try_rows(OrientedProblem& oriented, const Rows& rows,
                      OrientationFilter orientation_filter) {
  std::array<double, 4> passes;
  for (int choice = 0; choice < 4; ++choice)
    passes[choice] = oriented.may_choose(choice) ? pass_time(oriented, choice, device_) : 0;
  tries_.clear();
  for (const auto& [row, bound] : rows) {
    const GemmConfig& config = kCatalog[row];
    const RowFacts& facts = kRowFacts[row];
    if (!divides(facts, division_)) continue;
    if (filter_.empty() &&
        (facts.gemv_cluster != division_.gemv_cluster || facts.is_thin != division_.thin))
      continue;
    if (orientation_filter != nullptr && !orientation_filter(config, oriented.problem, division_))
      continue;
    const double least = bound.least(division_, least_bytes_);
    if (least >= best.launch.microseconds) continue;
    for (int choice = 0; choice < 4; ++choice)
      if (oriented.may_choose(choice)) tries_.push_back({least + passes[choice], row, choice});
  }
  // The best ones first, so that the others need not be looked at.
  std::ranges::sort(tries_);
  for (const Try& one : tries_) {
    if (one.least >= best.launch.microseconds) break;
    oriented.choose(one.choice);
    try_kernel(oriented, one.row, passes[one.choice]);
  }
}

double pass_time(const OrientedProblem& oriented, int choice, const Device& device) {
  if (choice == 0) return 0;
  double microseconds = pass_launch_us(device);
  if (choice & 1)
    microseconds += estimate_us(repack_pass(oriented.a), oriented.operands.a.layout, device);
  if (choice & 2)
    microseconds += estimate_us(repack_pass(oriented.b), oriented.operands.b.layout, device);
  return microseconds;
}

// Hopper has kernels of its own. A filter can ask for those of sm_80 and sm_89.
bool Search::is_newest(Arch arch) const {
  return arch == Arch::sm90a || !holds(code_, Arch::sm90a) ||
         filter_.find(name(arch)) != std::string_view::npos;
}

// The name of a row can be a part of another one's: ..._tn and ..._tn_pingpong.
bool Search::is_wanted(const GemmConfig& config) const {
  const ConfigName row = name(config);
  return names_one_row_ ? std::string_view(row) == filter_ : matches(row, filter_);
}

void Search::try_kernel(const OrientedProblem& oriented, int config_index, double pass_time) {
  const GemmConfig& config = kCatalog[config_index];
  const CandidateOperands& operands = oriented.operands;
  const Problem& problem = oriented.problem;
  std::optional<LaunchConfig> launch =
      config.is_gemv()    ? fit_gemv(config, problem, device_, operands, cluster_)
      : config.is_thin()  ? fit_thin(config, problem, device_, operands, cluster_)
      : config.uses_tma() ? fit_sm90(config, problem, device_, operands, cluster_, division_,
                                     least_bytes_, best.launch.microseconds)
      : config.arch == Arch::sm90a
          ? fit_fp64(config, problem, device_, operands, cluster_, division_)
          : fit_sm80(config, problem, device_, operands, cluster_);
  if (!launch) return;
  // fit_gemv, fit_thin and fit_sm90 count bytes.
  if (!config.is_gemv() && !config.is_thin() && !config.uses_tma())
    launch->microseconds = with_memory(*launch, config, problem, least_bytes_, device_);
  launch->microseconds += add_slices_time(config, problem, device_, *launch) + pass_time;
  if (!(launch->microseconds < best.launch.microseconds)) return;
  launch->config_index = config_index;
  // fit_sm90 has chosen both paths; the other kernels have the rolled epilogue alone.
  if (!config.uses_tma()) launch->store_path = store_path(config, problem);
  best = {*launch, oriented.swap_ab, {}, {}};
  if (operands.a.repacked) best.repack_a = repack_pass(oriented.a);
  if (operands.b.repacked) best.repack_b = repack_pass(oriented.b);
}

}  // namespace tcgemm::plan
