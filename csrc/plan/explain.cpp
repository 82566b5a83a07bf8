// Plans in words: what explain and check_layout answer.
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "catalog.h"
#include "plan/operand.h"
#include "plan/planner.h"

namespace tcgemm::plan {
namespace {

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

using Long = long long;

std::string shape(std::int64_t batch, std::int64_t rows, std::int64_t cols) {
  const std::string matrix = text("%lld x %lld", Long(rows), Long(cols));
  return batch > 1 ? text("%lld x ", Long(batch)) + matrix : matrix;
}

// 12345678 -> 12.3 MB
std::string size(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return text(unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
}

const char* obstacle(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::none:
      return "";
    case Obstacle::strided:
      return "neither dimension has stride 1";
    case Obstacle::base:
      return "its first element is not at a multiple of 16 bytes";
    case Obstacle::pitch:
      return "its leading dimension is not a multiple of 16 bytes";
    case Obstacle::batch_pitch:
      return "its batch stride is not a multiple of 16 bytes";
    case Obstacle::zero_pitch:
      return "it is expanded: a dimension has stride 0";
  }
  return "";
}

std::string advice(const Operand& operand, const Reading& reading) {
  const int word = int(kWordBytes) / bytes(operand.matrix.dtype);
  switch (reading.obstacle) {
    case Obstacle::none:
      return "nothing: it is read as it is";
    case Obstacle::strided:
      return text("%c.contiguous(), once, where it is reused", operand.label);
    case Obstacle::base:
      return text("start the slice at a multiple of %d elements, or clone it", word);
    case Obstacle::pitch:
      return text(
          "pad the storage to a leading dimension of %lld (a multiple of %d elements) and "
          "slice it",
          Long((reading.pitch + word - 1) / word * word), word);
    case Obstacle::batch_pitch:
      return text("pad each matrix of the batch to a multiple of %d elements", word);
    case Obstacle::zero_pitch:
      return "multiply the one row and expand the result instead";
  }
  return "";
}

std::string major(const Reading& reading) {
  return reading.strided ? "strided" : reading.major == Major::K ? "K-major" : "MN-major";
}

std::string layout(const Problem& problem) {
  const Reading a = read(operand_a(problem)), b = read(operand_b(problem));
  if (a.strided || b.strided) return major(a) + " by " + major(b);
  return text("%s (a %s, b %s)", name(layout_of(a.major, b.major)), major(a).c_str(),
              major(b).c_str());
}

std::string prepare_line(const Prepare& pass, const Operand& operand, const Device& device) {
  const Reading reading = read(operand);
  return text(
      "  prepare %c     copied K-major with a pitch of %lld elements because %s:\n"
      "                %s in, as much out, about %.1f us\n",
      operand.label, Long(pass.pitch), obstacle(reading.obstacle),
      size(double(bytes(pass))).c_str(), cost(pass, reading, device));
}

std::string prepare_lines(const Problem& problem, const Plan& plan, const Device& device) {
  std::string lines;
  if (plan.prepare_a) lines += prepare_line(*plan.prepare_a, operand_a(problem), device);
  if (plan.prepare_b) lines += prepare_line(*plan.prepare_b, operand_b(problem), device);
  return lines.empty() ? "  prepare       nothing is copied\n" : lines;
}

std::string epilogue(const Problem& problem) {
  std::string parts;
  const auto add = [&](bool given, const char* part) {
    if (given) parts += (parts.empty() ? "" : ", ") + std::string(part);
  };
  add(problem.alpha != 1.0, "alpha");
  add(problem.c.has_value(), "beta * c");
  add(problem.bias.has_value(), "bias");
  add(problem.activation != Activation::none, name(problem.activation));
  add(problem.residual.has_value(), "residual");
  return parts.empty() ? "nothing but the rounding" : parts + ", fused";
}

const char* store(const Problem& problem, const Plan& plan) {
  if (plan.store_tma) return "by TMA";
  if (wide(problem.out, problem.m, problem.n, problem.batch)) return "in words of up to 16 bytes";
  return "element by element: rows of out are not whole words of 16 bytes";
}

std::string reason(const Problem& problem, const Plan& plan, const Device& device) {
  const Kernel& kernel = kCatalog[plan.kernel];
  const double tiles = double(plan.tiles_m) * double(plan.tiles_n) * double(problem.batch);
  const double whole = std::ceil(plan.waves);
  std::string why = text(
      "the lowest estimate, %.1f us, of the kernels that fit; the last of %.0f "
      "wave%s is %.0f %% full",
      plan.microseconds, whole, whole > 1 ? "s" : "",
      100 * (plan.waves > whole - 1 ? plan.waves - (whole - 1) : 1.0));
  if (kernel.arch == Arch::sm80 && device.compute_capability == 90)
    why += problem.k == 0 ? "; with K = 0 there is nothing for TMA to load"
                          : "; mma.sync costs less here than the copies that TMA would need";
  if (kernel.arch == Arch::sm90a && tiles * plan.cluster < device.multiprocessors / 2.0)
    why += "; the result is too small to fill the machine";
  return why;
}

}  // namespace

std::string explain(const Problem& asked, const Plan& plan, const Device& device) {
  std::string head = text("tcgemm: out %s = a %s @ b %s, %s to %s (accumulator %s), on %s\n",
                          shape(asked.batch, asked.m, asked.n).c_str(),
                          shape(asked.batch, asked.m, asked.k).c_str(),
                          shape(asked.batch, asked.k, asked.n).c_str(), name(asked.a.dtype),
                          name(asked.out.dtype), name(asked.accumulator), device.name);
  if (plan.kernel < 0) return head + "  kernel        none: the result is empty\n";
  const Problem problem = plan.transposed ? transposed(asked) : asked;
  const Kernel& kernel = kCatalog[plan.kernel];
  std::string lines = head;
  lines += text("  kernel        %s (row %d of the catalog)\n", name(kernel).text, plan.kernel);
  lines += "  layout        " + layout(problem) + "\n";
  if (plan.transposed)
    lines += "  transposed    out is column-major: out^T = b^T a^T is computed\n";
  lines += prepare_lines(problem, plan, device);
  lines += text("  tile          %d x %d x %d, %d stages of %s, %d threads\n", kernel.tile_m(),
                kernel.tile_n(), kernel.tile_k(), kernel.stages, size(kernel.stage_bytes()).c_str(),
                kernel.threads());
  lines += text("  cluster       %d\n", plan.cluster);
  lines += text("  grid          %d blocks on %d multiprocessors, %.2f waves of tiles\n", plan.grid,
                device.multiprocessors, plan.waves);
  lines += "  epilogue      " + epilogue(problem) + "; stored " + store(problem, plan) + "\n";
  lines += text("  work          %.4g FLOP, %s of device memory, %.3g FLOP a byte\n",
                problem.flops(), size(plan.bytes).c_str(), problem.flops() / plan.bytes);
  const double compute = problem.flops() / device.tensor_rate * 1e6;
  const double memory = plan.bytes / device.memory_rate * 1e6;
  lines += text("  bound         %s (compute %.2f us, memory %.2f us, estimate %.1f us)\n",
                name(plan.bound), compute, memory, plan.microseconds);
  lines += "  why           " + reason(problem, plan, device) + "\n";
  return lines;
}

std::string check_layout(const Problem& asked, const Plan& plan, const Device& device) {
  const Problem problem = plan.transposed ? transposed(asked) : asked;
  std::string lines = text("tcgemm: layout of a %s @ b %s, %s, on %s: %s\n",
                           shape(asked.batch, asked.m, asked.k).c_str(),
                           shape(asked.batch, asked.k, asked.n).c_str(), name(asked.a.dtype),
                           device.name, layout(asked).c_str());
  for (const Operand& operand : {operand_a(asked), operand_b(asked)}) {
    const Reading reading = read(operand);
    // The transposed problem reads b first.
    const bool first = (operand.label == 'a') != plan.transposed;
    const bool copied = (first ? plan.prepare_a : plan.prepare_b).has_value();
    lines += text("  %c   %s, leading dimension %lld, aligned to %d bytes\n", operand.label,
                  major(reading).c_str(), Long(reading.pitch), reading.alignment);
    lines += reading.direct() ? std::string("      TMA can read it\n")
                              : text("      TMA cannot read it: %s\n", obstacle(reading.obstacle));
    lines += text("      faster: %s\n", advice(operand, reading).c_str());
    if (copied) lines += "      a prepare pass copies it first\n";
  }
  if (plan.kernel < 0) return lines + "  kernel  none: the result is empty\n";
  const Kernel& kernel = kCatalog[plan.kernel];
  lines += text("  kernel family %s (%s)\n",
                kernel.arch == Arch::sm90a ? "sm90a: TMA and wgmma" : "sm80: cp.async and mma.sync",
                name(kernel).text);
  if (plan.transposed)
    lines += "  out is column-major: the transposed product is computed, with a and b exchanged\n";
  return lines + prepare_lines(problem, plan, device);
}

}  // namespace tcgemm::plan
