// The code of a fat binary that the CUDA loader picks for a GPU.
#pragma once

#include <string_view>

#include "core/arch.h"

// TCGEMM_ARCHES lists the architectures of a build, separated by commas:
//
//   8.0       machine code for 8.0; it also runs on 8.6 and 8.9: same major, same or newer minor
//   8.0+PTX   PTX; the driver compiles it for every GPU that no machine code in the list serves
//   9.0a      machine code for 9.0 only, with arch-specific instructions (wgmma)
//   8.0@9.0   code for 8.0 compiled to machine code for 9.0: tests older kernels on a newer GPU
#ifndef TCGEMM_ARCHES
#define TCGEMM_ARCHES ""
#endif

namespace tcgemm {

// A build without CUDA has no device code; it plans as a build with the default list does.
inline constexpr std::string_view kDefaultArches = "8.0,8.0+PTX,8.9,9.0a";
inline constexpr std::string_view kArches =
    std::string_view(TCGEMM_ARCHES).empty() ? kDefaultArches : std::string_view(TCGEMM_ARCHES);

// The instruction set that code may use: the one of a compute capability, 10 * major + minor.
// `specific` adds the arch-specific instructions ("a"), which newer GPUs do not have.
struct Code {
  int capability = 0;  // 0: no code
  bool specific = false;
};

constexpr bool holds(Code code, Arch arch) {
  if (arch == Arch::sm90a) return code.capability == 90 && code.specific;
  return code.capability >= compute_capability(arch);
}

namespace code {

// One item of the list: instructions of `code`, compiled for compute capability `target`. PTX also
// serves newer ones.
struct Entry {
  Code code;
  int target = 0;
  bool ptx = false;

  constexpr bool runs_on(int compute_capability) const {
    if (code.specific) return compute_capability == target;
    if (compute_capability < target) return false;
    return ptx || compute_capability / 10 == target / 10;
  }
  // Among items that run on a GPU, the loader prefers machine code to PTX, then the newer target.
  constexpr int rank() const { return (ptx ? 0 : 100000) + 10 * target + (code.specific ? 1 : 0); }
};

// "9.0" and "9.0a" -> 90.
constexpr int capability(std::string_view text) {
  int digits = 0;
  for (char letter : text)
    if (letter >= '0' && letter <= '9') digits = 10 * digits + (letter - '0');
  return digits;
}

constexpr Entry parse(std::string_view item) {
  Entry entry;
  entry.ptx = item.ends_with("+PTX");
  const std::string_view source = item.substr(0, item.find_first_of("@+"));
  entry.code = {capability(source), source.ends_with('a')};
  const std::size_t at = item.find('@');
  entry.target = at == std::string_view::npos ? entry.code.capability : capability(item.substr(at));
  return entry;
}

template <class Visit>
constexpr void for_each(std::string_view arches, const Visit& visit) {
  while (!arches.empty()) {
    const std::size_t comma = arches.find(',');
    visit(parse(arches.substr(0, comma)));
    arches = comma == std::string_view::npos ? std::string_view{} : arches.substr(comma + 1);
  }
}

}  // namespace code

// The code that a GPU of this compute capability runs, out of the list of a build.
constexpr Code code_on(int compute_capability, std::string_view arches = kArches) {
  code::Entry best;
  code::for_each(arches, [&](const code::Entry& entry) {
    const bool better = best.code.capability == 0 || entry.rank() > best.rank();
    if (entry.runs_on(compute_capability) && better) best = entry;
  });
  return best.code;
}

// The code for which products are planned on a GPU that is named: this build's, or where it has
// none for that GPU, the code of a full build, which the machine with the GPU has.
constexpr Code planned_code(int compute_capability, std::string_view arches = kArches) {
  const Code own = code_on(compute_capability, arches);
  return own.capability != 0 ? own : code_on(compute_capability, kDefaultArches);
}
static_assert(planned_code(80, "9.0a").capability == 80 && planned_code(90, "8.0").specific &&
              planned_code(90, "8.0+PTX").capability == 80);

// True if the build contains code for kernels of `arch`, for any GPU.
constexpr bool compiled(Arch arch, std::string_view arches = kArches) {
  bool is_compiled = false;
  code::for_each(arches, [&](const code::Entry& entry) { is_compiled |= holds(entry.code, arch); });
  return is_compiled;
}

// "9.0a", or "none".
struct CodeName {
  char text[8] = {};
};

constexpr CodeName name(Code code) {
  if (code.capability == 0) return {"none"};
  CodeName result;
  int length = 0;
  if (code.capability >= 100) result.text[length++] = char('0' + code.capability / 100);
  result.text[length++] = char('0' + code.capability / 10 % 10);
  result.text[length++] = '.';
  result.text[length++] = char('0' + code.capability % 10);
  if (code.specific) result.text[length++] = 'a';
  return result;
}

}  // namespace tcgemm
