// The time in which a TMA + wgmma kernel stores its result.
#include "plan/store_time.h"

namespace tcgemm::plan {
namespace {

// Clocks for an element of the tile.
constexpr double kStore = 0.03;         // clocks to convert and store an element of the tile
constexpr double kPingpongStore = 3.0;  // factor where one warpgroup stores and one multiplies
constexpr double kStore32 = 0.13;       // the same for 32-bit results, which are not stored by TMA
constexpr double kBinaryStore = 0.05;   // the same of b1 operands
constexpr double kScaleStore = 0.01;    // added for alpha and scales
constexpr double kRolledStore = 0.4;    // the total of the rolled epilogue with terms
constexpr double kRolledScales = 0.36;  // the total with scales
constexpr double kTransposedRows = 0.12;    // added where RS kernels store rows
constexpr double kActivationStore = 0.08;   // added for gelu, gelu_tanh and silu
constexpr double kRolledActivation = 0.25;  // the same in the rolled epilogue
constexpr double kAddendStore = 0.21;       // added for c or the residual
// The general variant of EpiloguePath::columns, a loop over units of 32 columns or of 16: the total
// with terms, and what an activation adds.
constexpr double kColumnsTerms = 0.25;
constexpr double kColumnsHalfTerms = 0.4;
constexpr double kColumnsActivation = 0.05;
// What a scale for each column of the tile adds to the plain variant, with units of 32 columns and
// of 16.
constexpr double kColumnsScales = 0.1;
constexpr double kColumnsHalfScales = 0.18;
constexpr double kColumns8 = 0.12;  // added for any scale of 8-bit operands
// Factor where one warpgroup stores alone, also if each warpgroup of pingpong has one tile; not of
// split FP32.
constexpr double kOneStore = 2.0;

// Needs a kernel with EpiloguePath::columns its general variant? tile/transposed.cuh: both variants
// have a bias and relu, and that of 8-bit operands scales.
bool has_general_terms(const Problem& problem, bool scales) {
  const bool scaled = scales || problem.alpha != 1.0;
  constexpr SlotSet kTerms = {Slot::c, Slot::residual, Slot::z, Slot::amax, Slot::scale_out};
  return is_transcendental(problem.activation) || problem.has_any(kTerms) ||
         (scaled && bits(problem.input_a) != 8);
}

// Has each column of the tile a scale, which the epilogue multiplies by?
bool scales_columns(const Problem& problem) {
  return problem.has(Slot::scale_b) && problem[Slot::scale_b].stride_col != 0 &&
         !problem.block_scaled();
}

}  // namespace

double store_clocks(const GemmConfig& config, const Problem& problem, const LaunchConfig& launch) {
  const EpiloguePath path = launch.epilogue_path;
  const bool scales = problem.has_any(kOperandScales), rolled = path == EpiloguePath::rolled;
  // The constants fitted for f16 and bf16 operands include f32 results.
  const bool is_32bit = bits(problem[Slot::out].dtype) == 32 && bits(problem.input_a) != 16;
  const double store32 = problem.input_a == DType::b1 ? kBinaryStore : kStore32;
  double clocks = (is_32bit ? store32 : kStore) + (scales ? kScaleStore : 0.0);
  if (rolled && scales)
    clocks = kRolledScales;
  else if (rolled && (problem.has_epilogue_terms() || problem.alpha != 1.0))
    clocks = kRolledStore;
  if (config.mainloop == Mainloop::rs && launch.store_path == StorePath::tma_rows)
    clocks += kTransposedRows;
  const bool has_columns = path == EpiloguePath::columns;
  const bool has_whole_units = config.n % kStoreColumns == 0;
  const bool has_activation = is_transcendental(problem.activation);
  const bool loops = has_columns && has_general_terms(problem, scales);
  if (loops)
    clocks = has_whole_units ? kColumnsTerms : kColumnsHalfTerms;
  else if (has_columns && scales_columns(problem))
    clocks += has_whole_units ? kColumnsScales : kColumnsHalfScales;
  if (has_columns && scales && bits(problem.input_a) == 8) clocks += kColumns8;
  if (has_activation)
    clocks += rolled ? kRolledActivation : loops ? kColumnsActivation : kActivationStore;
  if (!loops && (problem.has(Slot::c) || problem.has(Slot::residual))) clocks += kAddendStore;
  if (config.warpgroups == 1 && config.terms() == 1) clocks *= kOneStore;
  if (config.pingpong) clocks *= launch.waves > 2 ? kPingpongStore : kOneStore;
  return clocks;
}

}  // namespace tcgemm::plan
