// Shapes, sizes, dtypes and epilogue terms as text.
#include "plan/explain_text.h"

#include <cstdarg>
#include <cstdio>

#include "core/integer.h"

namespace tcgemm::plan {
namespace {

// Joins the items that are present with commas.
class List {
 public:
  void add(bool present, const std::string& item) {
    if (present) text_ += (text_.empty() ? "" : ", ") + item;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::int64_t extent(const Problem& problem, Axis axis) {
  switch (axis) {
    case Axis::one: break;
    case Axis::m: return problem.m;
    case Axis::n: return problem.n;
    case Axis::k: return problem.k;
  }
  return 1;
}

// scale_a or scale_b. Rows of scale_a lie along m, and columns of scale_b lie along n.
std::string scale_text(const Problem& problem, Slot slot) {
  const bool is_a = slot == Slot::scale_a;
  const Operand scale = is_a ? problem[slot] : transposed(problem[slot]);
  const bool one_a_row = scale.stride_row != 0;
  std::string kind = "one value";
  if (scale.stride_col != 0)
    kind = text("blocks of %d x %d", is_a ? 1 << scale.shift_row : kScaleBlock,
                is_a ? kScaleBlock : 1 << scale.shift_row);
  else if (one_a_row)
    kind = scale.shift_row == 0
               ? std::string("a value a ") + (is_a ? "row" : "column")
               : text("a value for %d %s", 1 << scale.shift_row, is_a ? "rows" : "columns");
  return std::string(name(slot)) + " (" + kind + ")";
}

// A tensor of the epilogue.
std::string term_text(const Problem& problem, Slot slot) {
  if (kOperandScales.contains(slot)) return scale_text(problem, slot);
  if (slot == Slot::c) return "beta * c";
  if (slot == Slot::scale_out)
    return std::string("scale_out, requantised to ") + name(problem[Slot::out].dtype);
  return name(slot);
}

}  // namespace

std::string text(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

std::string shape(const Problem& problem, Slot slot) {
  const OperandRow& row = operand_row(slot);
  const std::string matrix =
      text("%lld x %lld", Long(extent(problem, row.rows)), Long(extent(problem, row.cols)));
  // Groups are parts of one matrix in tensors with their dimension.
  const bool has_groups = row.rows == problem.grouped || row.cols == problem.grouped;
  const bool has_batch = problem.is_grouped() ? !has_groups : problem.batch > 1;
  return has_batch ? text("%lld x ", Long(problem.batch)) + matrix : matrix;
}

const char* groups_name(Axis grouped) {
  switch (grouped) {
    case Axis::one: break;
    case Axis::m: return "rows";
    case Axis::n: return "columns";
    case Axis::k: return "k";
  }
  return "";
}

std::string groups_line(const Problem& problem) {
  if (!problem.is_grouped()) return "";
  const char* const of = problem.grouped == Axis::m   ? "the rows of a"
                         : problem.grouped == Axis::n ? "the columns of b"
                                                      : "k";
  const std::string unit =
      problem.grouped == Axis::k ? "" : std::string(groups_name(problem.grouped)) + " ";
  const double mean = double(extent(problem, problem.grouped)) / double(problem.batch);
  return text(mean < 10 ? "  groups        %lld of %s, %.2g %seach in the mean\n"
                        : "  groups        %lld of %s, %.0f %seach in the mean\n",
              Long(problem.batch), of, mean, unit.c_str());
}

std::string size(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return text(unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
}

std::string cluster_name(ClusterShape shape) {
  const std::string along_m = std::to_string(shape.m);
  return shape.n == 1 ? along_m : along_m + "x" + std::to_string(shape.n);
}

std::string types(const Problem& problem) {
  std::string operands = name(problem[Slot::a].dtype);
  if (problem[Slot::b].dtype != problem[Slot::a].dtype)
    operands += std::string(" by ") + name(problem[Slot::b].dtype);
  if (problem.input_a != problem[Slot::a].dtype)
    operands += std::string(" as ") + name(problem.input_a);
  return operands + " to " + name(problem[Slot::out].dtype) + " (accumulator " +
         name(problem.accumulator) + (problem.promote ? ", promoted every 128 of k)" : ")");
}

std::string block_scales(const Problem& problem) {
  if (!problem.block_scaled()) return "";
  List list;
  for (const Slot slot : problem.operands.given() & kOperandScales)
    list.add(true, scale_text(problem, slot));
  return list.text();
}

std::string epilogue(const Problem& problem) {
  List list;
  for (const Slot slot : kEpilogueOrder) {
    if (slot == Slot::scale_a) list.add(problem.alpha != 1.0, "alpha");
    if (slot == Slot::residual)
      list.add(problem.activation != Activation::none, name(problem.activation));
    const bool in_mainloop = kOperandScales.contains(slot) && problem.block_scaled();
    if (problem.has(slot) && !in_mainloop) list.add(true, term_text(problem, slot));
  }
  list.add(problem.adds_ones(), std::string(name(problem.binary)) + " of the pairs of ones");
  return list.text().empty() ? "only the rounding" : list.text() + ", fused";
}

std::string major(const OperandLayout& layout) {
  return layout.strided ? "strided" : layout.major == Major::K ? "K-major" : "MN-major";
}

std::string layout(const Problem& problem) {
  const OperandLayout a = analyze_layout(operand_a(problem)),
                      b = analyze_layout(operand_b(problem));
  if (a.strided || b.strided) return major(a) + " by " + major(b);
  return text("%s (a %s, b %s)", name(layout_of(a.major, b.major)), major(a).c_str(),
              major(b).c_str());
}

const char* rates_source(RateSource source) {
  switch (source) {
    case RateSource::measured: return "measured on this GPU model";
    case RateSource::datasheet: return "from the GPU's datasheet";
    case RateSource::driver:
      return "from what the driver reports: clock, memory bus, multiprocessors";
  }
  return "";
}

std::string kernel_family(const GemmConfig& config) {
  return text("%s: %s", name(config.arch),
              config.uses_tma()  ? "TMA and wgmma"
              : config.is_thin() ? "mma.sync"
                                 : "cp.async and mma.sync");
}

const char* describe(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::none: return "";
    case Obstacle::strided: return "neither dimension has stride 1";
    case Obstacle::base: return "its first element is not at a multiple of 16 bytes";
    case Obstacle::pitch: return "its leading dimension is not a multiple of 16 bytes";
    case Obstacle::batch_pitch: return "its batch stride is not a multiple of 16 bytes";
    case Obstacle::zero_pitch: return "it is expanded: a dimension has stride 0";
    case Obstacle::rows:
      return "TMA reads the values of a 2:4 operand by 16 rows, and its rows are not a multiple of "
             "16";
  }
  return "";
}

std::string why_copied(const GemmOperand& operand, const OperandLayout& layout) {
  if (operand.converts())
    return std::string("the tensor cores take ") + name(operand.matrix.dtype) + " as " +
           name(operand.input);
  if (!layout.tma_readable()) return describe(layout.obstacle);
  if (operand.sparse) return "tensor cores read the values of a sparse operand K-major only";
  return std::string("tensor cores read ") + name(operand.input) + " K-major only";
}

std::string advice(const GemmOperand& operand, const OperandLayout& layout) {
  const int vector = int(kVectorBytes) * 8 / bits(operand.matrix.dtype);
  switch (layout.obstacle) {
    case Obstacle::none:
      if (operand.converts())
        return text("%c.%s(), once, where it is reused", operand.label,
                    is_int4(operand.matrix.dtype) ? "to_int8" : "bfloat16");
      if (operand.k_major_only() && layout.major == Major::MN && !layout.any_major)
        return text("store it K-major (%s), where it is reused",
                    operand.label == 'a' ? "M x K row-major" : "N x K row-major, given as .t()");
      return "nothing: it is read in place";
    case Obstacle::strided: return text("%c.contiguous(), once, where it is reused", operand.label);
    case Obstacle::base:
      return text("start the slice at a multiple of %d elements, or clone it", vector);
    case Obstacle::pitch:
      return text(
          "pad the storage to a leading dimension of %lld (a multiple of %d elements) and "
          "slice it",
          Long(round_up(layout.pitch, vector)), vector);
    case Obstacle::batch_pitch:
      return text("pad each matrix of the batch to a multiple of %d elements", vector);
    case Obstacle::zero_pitch: return "multiply the one row and expand the result instead";
    case Obstacle::rows: return "pad the weight to a multiple of 16 rows, and slice the result";
  }
  return "";
}

}  // namespace tcgemm::plan
