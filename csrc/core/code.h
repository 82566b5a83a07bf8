// Which of a build's code runs on a GPU: what the CUDA loader picks from a fat binary.
//
// A build names its architectures in words, TCGEMM_ARCHES:
//
//   8.0       machine code for 8.0, which also runs on 8.6 and 8.9: the same major, no older minor
//   8.0+PTX   what the driver assembles for every GPU that no machine code serves
//   9.0a      machine code for 9.0 alone, with its own instructions (wgmma)
//   8.0@9.0   8.0's instructions as machine code for 9.0: older kernels, tested on a newer GPU
#pragma once

#include <string_view>

#include "core/arch.h"

#ifndef TCGEMM_ARCHES
#define TCGEMM_ARCHES ""
#endif

namespace tcgemm {

// A build without CUDA holds no code; its plans are those of a build as it is by default.
inline constexpr std::string_view kDefaultArches = "8.0,8.0+PTX,8.9,9.0a";
inline constexpr std::string_view kArches =
    std::string_view(TCGEMM_ARCHES).empty() ? kDefaultArches : std::string_view(TCGEMM_ARCHES);

// The instructions that code may use: those of a compute capability, 10 * major + minor, and where
// it is `specific` those that later GPUs lack.
struct Code {
  int capability = 0;  // 0: there is no code
  bool specific = false;
};

constexpr bool holds(Code code, Arch arch) {
  if (arch == Arch::sm90a) return code.capability == 90 && code.specific;
  return code.capability >= (arch == Arch::sm89 ? 89 : 80);
}

namespace code {

// One word: instructions of `code`, for GPUs of compute capability `target`, or newer ones by PTX.
struct Entry {
  Code code;
  int target = 0;
  bool ptx = false;

  constexpr bool runs_on(int compute_capability) const {
    if (code.specific) return compute_capability == target;
    if (compute_capability < target) return false;
    return ptx || compute_capability / 10 == target / 10;
  }
  // Of two that run, the loader takes machine code before PTX, and the newer of either.
  constexpr int rank() const { return (ptx ? 0 : 100000) + 10 * target + (code.specific ? 1 : 0); }
};

// "9.0a" -> 90, with a letter behind it or not.
constexpr int capability(std::string_view text) {
  int digits = 0;
  for (char letter : text)
    if (letter >= '0' && letter <= '9') digits = 10 * digits + (letter - '0');
  return digits;
}

constexpr Entry parse(std::string_view word) {
  Entry entry;
  entry.ptx = word.ends_with("+PTX");
  const std::string_view source = word.substr(0, word.find_first_of("@+"));
  entry.code = {capability(source), source.ends_with('a')};
  const std::size_t at = word.find('@');
  entry.target = at == std::string_view::npos ? entry.code.capability : capability(word.substr(at));
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

// What a GPU of this compute capability runs of a build.
constexpr Code code_on(int compute_capability, std::string_view arches = kArches) {
  code::Entry best;
  code::for_each(arches, [&](const code::Entry& entry) {
    const bool better = best.code.capability == 0 || entry.rank() > best.rank();
    if (entry.runs_on(compute_capability) && better) best = entry;
  });
  return best.code;
}

// Is there code of this build that kernels of `arch` fit into, whatever the GPU?
constexpr bool compiled(Arch arch, std::string_view arches = kArches) {
  bool found = false;
  code::for_each(arches, [&](const code::Entry& entry) { found |= holds(entry.code, arch); });
  return found;
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
