// wgmma: products of a warpgroup with both operands in shared memory (PTX ISA 9.7.15.5).
//
// Accumulators are passed as the registers of one m64nN block, N/2 of f32 or N/4 of packed f16 a
// thread: d[i] is row 16 * warp + lane / 4 + 8 * ((i >> 1) & 1), column 8 * (i >> 2) + 2 * (lane %
// 4) + (i & 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/dtype.h"
#include "core/layout.h"

namespace tcgemm::ptx {

// Before the first wgmma after ordinary instructions touched the accumulators.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most kGroups of the committed groups are in flight.
template <int kGroups>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// Shared-memory descriptor of an operand tile with the 128-byte swizzle (9.7.15.5.1.2). The tile is
// a row of 8 KB blocks, each 64 rows of 128 bytes:
//   K-major : 64 of m (or n) x 64 of k; 8-row groups are 1024 bytes apart (SBO), LBO is not read
//   MN-major: 64 of k x 64 of m (or n); 8 rows of k are 1024 bytes apart (SBO), the next 64 of m
//   8192 (LBO)
// A step along k adds to the low word alone: see kDescriptorStep.
__device__ inline std::uint64_t wgmma_descriptor(std::uint32_t shared) {
  constexpr std::uint64_t kSwizzle128 = 1ull << 62;
  constexpr std::uint64_t kStride = std::uint64_t(1024 >> 4) << 32;
  constexpr std::uint64_t kLeading = std::uint64_t(8192 >> 4) << 16;
  return kSwizzle128 | kStride | kLeading | ((shared & 0x3ffff) >> 4);
}

// What one instruction's depth (32 bytes of k) adds to a descriptor: 32 bytes along a K-major row,
// 16 rows of an MN-major block.
template <Major kMajor>
inline constexpr std::uint64_t kDescriptorStep = kMajor == Major::K ? 32 >> 4 : 2048 >> 4;

// "m64n256k16.f32.bf16.bf16": the type and shape of an instruction. The "C" constraint pastes a
// constexpr array of char into the text, so it is spelled out letter by letter.
template <int kN, DType kInput, DType kAccumulator>
struct WgmmaShape {
  char letters[40] = {};
  int length = 0;

  constexpr WgmmaShape() {
    const auto add = [&](const char* part) {
      while (*part) letters[length++] = *part++;
    };
    add("m64n");
    if (kN >= 100) letters[length++] = char('0' + kN / 100);
    if (kN >= 10) letters[length++] = char('0' + kN / 10 % 10);
    letters[length++] = char('0' + kN % 10);
    for (const char* part : {"k16.", name(kAccumulator), ".", name(kInput), ".", name(kInput)})
      add(part);
  }
};

template <auto kShape, std::size_t... kIndex>
struct WgmmaLetters {
  static constexpr char text[] = {kShape.letters[kIndex]..., '\0'};
};

template <auto kShape, std::size_t... kIndex>
WgmmaLetters<kShape, kIndex...> wgmma_letters(std::index_sequence<kIndex...>);

template <int kN, DType kInput, DType kAccumulator>
using WgmmaText = decltype(wgmma_letters<WgmmaShape<kN, kInput, kAccumulator>{}>(
    std::make_index_sequence<WgmmaShape<kN, kInput, kAccumulator>{}.length>{}));

#define TCGEMM_P0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TCGEMM_P1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TCGEMM_P2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TCGEMM_P3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TCGEMM_P4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TCGEMM_P5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TCGEMM_P6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define TCGEMM_P7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TCGEMM_D4(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define TCGEMM_D16(C, i) \
  TCGEMM_D4(C, i), TCGEMM_D4(C, i + 4), TCGEMM_D4(C, i + 8), TCGEMM_D4(C, i + 12)
#define TCGEMM_D64(C, i) \
  TCGEMM_D16(C, i), TCGEMM_D16(C, i + 16), TCGEMM_D16(C, i + 32), TCGEMM_D16(C, i + 48)
// A, B, ... are the operand numbers that follow the accumulators.
#define TCGEMM_WGMMA(P, A, B, SCALE, TEXT, TRANS_A, TRANS_B, ...)                            \
  asm volatile(                                                                              \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE ", 0;\nwgmma.mma_async.sync.aligned.%" TEXT \
      " {" P "}, %" A ", %" B ", p, 1, 1, %" TRANS_A ", %" TRANS_B ";\n}\n"                  \
      : __VA_ARGS__                                                                          \
      : "l"(a), "l"(b), "r"(int(accumulate)), "C"(Text::text), "n"(kTransA), "n"(kTransB))

// d = a * b + (accumulate ? d : 0), one instruction deep.
template <int kN, DType kInput, DType kAccumulator, Layout kLayout, class Register, int kRegisters>
__device__ inline void wgmma(Register (&d)[kRegisters], std::uint64_t a, std::uint64_t b,
                             bool accumulate) {
  using Text = WgmmaText<kN, kInput, kAccumulator>;
  constexpr int kTransA = major_a(kLayout) == Major::MN;
  constexpr int kTransB = major_b(kLayout) == Major::MN;
  static_assert(kRegisters == kN * bytes(kAccumulator) / 8);
  if constexpr (kAccumulator == DType::f32) {
    if constexpr (kRegisters == 32)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1, "32", "33", "34", "35", "36", "37", TCGEMM_D16("+f", 0),
                   TCGEMM_D16("+f", 16));
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "64", "65", "66", "67",
                   "68", "69", TCGEMM_D64("+f", 0));
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5,
                   "96", "97", "98", "99", "100", "101", TCGEMM_D64("+f", 0), TCGEMM_D16("+f", 64),
                   TCGEMM_D16("+f", 80));
    else if constexpr (kRegisters == 128)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5
                             "," TCGEMM_P6 "," TCGEMM_P7,
                   "128", "129", "130", "131", "132", "133", TCGEMM_D64("+f", 0),
                   TCGEMM_D64("+f", 64));
    else
      static_assert(kRegisters < 0, "wgmma.cuh has no register list of this length");
  } else {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA(TCGEMM_P0, "16", "17", "18", "19", "20", "21", TCGEMM_D16("+r", 0));
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1, "32", "33", "34", "35", "36", "37", TCGEMM_D16("+r", 0),
                   TCGEMM_D16("+r", 16));
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "64", "65", "66", "67",
                   "68", "69", TCGEMM_D64("+r", 0));
    else
      static_assert(kRegisters < 0, "wgmma.cuh has no register list of this length");
  }
}

#undef TCGEMM_P0
#undef TCGEMM_P1
#undef TCGEMM_P2
#undef TCGEMM_P3
#undef TCGEMM_P4
#undef TCGEMM_P5
#undef TCGEMM_P6
#undef TCGEMM_P7
#undef TCGEMM_D4
#undef TCGEMM_D16
#undef TCGEMM_D64
#undef TCGEMM_WGMMA

}  // namespace tcgemm::ptx
