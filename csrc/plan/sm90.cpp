// What a TMA + wgmma kernel costs on Hopper.
//
// A block spends per k-block the larger of the tensor cores' time and the time to take the operands
// in from L2; per tile a fill and an epilogue; and the grid is as slow as its last wave. The
// constants were fitted to the times of every tile with both cluster sizes on 25 shapes of bf16 TN
// on an H200: the tile that the model picks is within 5 % of the fastest one on each, and the
// fastest itself on most.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kClock = 1587;         // clocks a microsecond: between boost and the power cap
constexpr double kFmaPerClock = 2048;   // f16/bf16 tensor cores of one multiprocessor, 16 bits wide
constexpr double kBytesPerClock = 80;   // L2 to one multiprocessor
constexpr double kCrossing = 2.2;       // lines a row of 128 bytes costs that begins inside one
constexpr double kLaunch = 1.35;        // microseconds: launch and barriers
constexpr double kCluster = 0.15;       // microseconds: a cluster's start
constexpr double kFill = 1770;          // clocks a tile: from the first load to the first product
constexpr double kBlockOverhead = 156;  // clocks a k-block: barrier, issue, and what is not hidden
constexpr double kPlainStore = 0.03;    // clocks an element of the tile to convert and store it
constexpr double kWideStore = 0.05;     // the same of 32 bits, which do not leave by TMA
constexpr double kScaled = 0.01;        // more, for alpha and scales on their way
constexpr double kOptions = 0.1;        // in all, with an epilogue
constexpr double kTraffic = 0.02;       // bytes cost power even where their time is hidden
// Near the power cap, multiprocessors that idle in the last wave give their power to the others, so
// that a part of the wave counts only as far as it is full. Smaller problems, counted as f16's that
// take as long, do not reach the cap.
constexpr double kPowerBoundFlops = 1.1e10;
constexpr double kPartialWave = 0.26;

double wave_time(double waves, double flops) {
  const double share = flops < kPowerBoundFlops ? 0.0 : kPartialWave;
  return (1 - share) * std::ceil(waves) + share * waves;
}

// Clocks a product takes beside the best tile's: three warpgroups share 128 registers a thread, two
// blocks of rows a warpgroup read b twice; partial sums are added to the accumulators, scaled or
// not, and there blocks that wait for each other disturb the turns of their warpgroups; an operand
// is turned on its way to registers. Of parts there are several products, in turns
// where there are two warpgroups.
double issue(const GemmConfig& config, int cluster) {
  // Twice the products a clock, as far as shared memory brings b.
  if (config.sparse)
    return 0.5 *
           (config.n >= 256   ? 1.13
            : config.n >= 192 ? 1.17
                              : 1.26) *
           (config.warpgroups == 3 ? 1.036 : 1.0);
  if (config.terms == kBf16Terms) return split_product_count(config.terms) * 1.165;
  if (config.terms > 1)
    return split_product_count(config.terms) * (config.warpgroups == 1 ? 1.5
                                                : config.n == 256      ? 1.26
                                                                       : 1.3);
  double factor = config.warpgroups == 3 ? 1.036 : config.m64_blocks > 1 ? 1.01 : 1.0;
  if (config.promotes()) factor *= config.block_scaled ? 1.25 : cluster > 1 ? 1.1 : 1.08;
  if (config.operand_source == OperandSource::RS) factor *= 1 + kTransposeShare;
  return factor;
}

double store_clocks(const Problem& problem) {
  const bool scales = problem.scale_a || problem.scale_b;
  if (problem.has_epilogue_terms() || (problem.alpha != 1.0 && !scales)) return kOptions;
  // What was fitted for f16 and bf16 operands has f32 results in it.
  const bool wide = bits(problem.out.dtype) == 32 && bits(problem.input_a) != 16;
  return (wide ? kWideStore : kPlainStore) + (scales ? kScaled : 0.0);
}

// Lines of L2 that a row of a stage costs. s8 4096^3 in tiles of 128x256 with rows 4112 bytes
// apart: 1.35 times the time in blocks of their own, 1.02 times in clusters of two, which share b.
double lines(const CandidateOperand& input, DType type) {
  constexpr int kLine = 128;  // bytes
  const OperandLayout& reading = input.reading;
  const bool whole =
      input.prepared || (reading.alignment >= kLine && reading.pitch * bytes(type) % kLine == 0);
  return whole ? 1.0 : kCrossing;
}

double kernel_time(const GemmConfig& config, const Problem& problem,
                   const CandidateOperands& inputs, const Plan& plan) {
  const double depth = double(ceil_div(problem.k, config.tile_k()));
  const double area = double(config.tile_m()) * config.tile_n();
  const double fma = kFmaPerClock * 16 / bits(config.input);
  const double math = issue(config, plan.cluster) * area * config.tile_k() / fma;
  const double lines_a = config.tile_m() * lines(inputs.a, config.input);
  const double lines_b = config.tile_n() * lines(inputs.b, config.input_b) / plan.cluster;
  const double bytes_in =
      config.terms * (lines_a * config.row_bytes_a() + lines_b * config.row_bytes()) +
      config.metadata_bytes();
  const double load = bytes_in / kBytesPerClock;
  const double store = area * store_clocks(problem);
  const double tile =
      depth * (std::max(math, load) + kBlockOverhead + kTraffic * load) + kFill + store;
  const double start = kLaunch + (plan.cluster > 1 ? kCluster : 0.0);
  const double products = config.terms > 1 ? split_product_count(config.terms) : 1;
  const double skipped = config.sparse ? 0.5 : 1.0;
  const double flops = products * skipped * problem.flops() * bits(config.input) / 16;
  return start + wave_time(plan.waves, flops) * tile / kClock;
}

// TMA drops what lies outside in whole 16-byte words: a ragged line would lose its neighbours. And
// a narrow tile has no whole box.
TmaStore tma_store(const GemmConfig& config, const Problem& problem) {
  const Matrix& out = problem.out;
  if (bits(out.dtype) < 16) return TmaStore::none;
  if (config.tile_n() % (1024 / bits(out.dtype)) == 0 && whole_vectors(problem.n, out.dtype) &&
      is_vectorizable(out, problem.m, problem.n, problem.batch))
    return TmaStore::rows;
  if (config.tma_stores_columns() && out.dtype == config.column_store_dtype() &&
      problem.has_default_epilogue() && whole_vectors(problem.m, out.dtype) &&
      is_vectorizable(transposed(out), problem.n, problem.m, problem.batch))
    return TmaStore::columns;
  return TmaStore::none;
}

}  // namespace

bool fit_sm90(const GemmConfig& config, const Problem& problem, const Device& device,
              const CandidateOperands& inputs, Plan& plan) {
  if (!inputs.a.direct() || !inputs.b.direct() || problem.k == 0) return false;
  if (!inputs.serve(config.layout)) return false;
  if (config.shared_bytes() > device.shared_bytes) return false;

  plan.tma_store = tma_store(config, problem);
  const std::int64_t rows = ceil_div(problem.m, config.tile_m());
  plan.tiles_n = ceil_div(problem.n, config.tile_n());
  double best = HUGE_VAL;
  Plan chosen = plan;
  for (int cluster : {1, 2}) {
    if (cluster > rows) break;
    Plan trial = plan;
    trial.cluster = cluster;
    trial.tiles_m = ceil_div(rows, cluster);
    const double clusters = double(trial.tiles_m) * double(plan.tiles_n) * double(problem.batch);
    const std::int64_t resident = device.multiprocessors / cluster;
    trial.waves = clusters / double(resident);
    trial.grid = int(std::min(clusters, double(resident))) * cluster;
    trial.microseconds = kernel_time(config, problem, inputs, trial);
    if (trial.microseconds < best) {
      best = trial.microseconds;
      chosen = trial;
    }
  }
  plan = chosen;
  plan.raster_group = raster_group(config, device, plan.cluster);
  return true;
}

}  // namespace tcgemm::plan
