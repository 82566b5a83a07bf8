// One way to compute a Problem, and what it is expected to cost: sm80.cpp, sm90.cpp and f64.cpp
// know the kernels, planner.cpp chooses.
#pragma once

#include <algorithm>
#include <cmath>

#include "catalog.h"
#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// An operand as a candidate reads it: as it is, or after a prepare pass.
struct CandidateOperand {
  OperandLayout reading;
  bool converts = false;
  bool prepared = false;

  // In 16-byte words by a kernel of this major?
  bool serves(Major major) const {
    if (prepared) return major == Major::K;
    return !converts && (reading.either || reading.major == major);
  }
  bool direct() const { return prepared || reading.direct(); }
  bool reads_vectors() const { return prepared || reading.reads_vectors(); }
};

struct CandidateOperands {
  CandidateOperand a, b;

  bool serve(Layout layout) const { return a.serves(major_a(layout)) && b.serves(major_b(layout)); }
};

// Time of the kernel, without passes before it. `plan` gets grid, cluster, tiles and waves. False:
// this kernel cannot run the problem.
bool fit_sm80(const GemmConfig& config, const Problem& problem, const Device& device,
              const CandidateOperands& inputs, Plan& plan);
bool fit_sm90(const GemmConfig& config, const Problem& problem, const Device& device,
              const CandidateOperands& inputs, Plan& plan);
bool fit_f64(const GemmConfig& config, const Problem& problem, const Device& device,
             const CandidateOperands& inputs, Plan& plan);

// Rows of tiles that are walked together by a persistent kernel: tiles in flight at one time form a
// square of the result, the fewest bytes from L2 for the same work.
inline int raster_group(const GemmConfig& config, const Device& device, int cluster = 1) {
  const double rows = std::sqrt(double(device.multiprocessors) * config.tile_n() / config.tile_m());
  return std::max(1, int(std::lround(rows / cluster)));
}

// Gives `bytes` the next place in a workspace, and returns it.
constexpr std::size_t carve_workspace(std::size_t& offset, std::size_t bytes) {
  const std::size_t start = offset;
  offset += aligned(bytes);
  return start;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tcgemm::plan
