// wgmma whose first operand comes from registers (PTX ISA 9.7.15.5.2): fences, descriptors, type
// text and accumulators are those of wgmma.cuh.
//
// A warp holds 16 rows of a, 32 bytes of k deep, as mma.sync's m16 fragment; lane = 4 * g + t:
//   a[0] row g, bytes 4t ..    a[1] row g + 8, bytes 4t ..    a[2], a[3] the same rows, 16 bytes on
// Registers must not change until the group that reads them has been waited for.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ptx/wgmma.cuh"

namespace tcgemm::ptx {

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
// A is the list of the four operands that follow the accumulators; then come B, ...
#define TCGEMM_WGMMA(P, A, B, SCALE, SHAPE, TAIL, ...)                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE                                        \
               ", 0;\nwgmma.mma_async.sync.aligned.%" SHAPE " {" P "}, {" A "}, %" B ", p%" TAIL \
               ";\n}\n"                                                                          \
               : __VA_ARGS__                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)),       \
                 "C"(Text::shape), "C"(Text::tail))
#define TCGEMM_WGMMA_32(C)                                                         \
  TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1, "%32,%33,%34,%35", "36", "37", "38", "39", \
               TCGEMM_D16(C, 0), TCGEMM_D16(C, 16))
#define TCGEMM_WGMMA_64(C)                                                                         \
  TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "%64,%65,%66,%67", "68", "69", \
               "70", "71", TCGEMM_D64(C, 0))
#define TCGEMM_WGMMA_128(C)                                                                    \
  TCGEMM_WGMMA(TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5 \
                         "," TCGEMM_P6 "," TCGEMM_P7,                                          \
               "%128,%129,%130,%131", "132", "133", "134", "135", TCGEMM_D64(C, 0),            \
               TCGEMM_D64(C, 64))

// d = a * b + (accumulate ? d : 0), one instruction deep; b is K-major.
template <WgmmaType kType, class Register, int kRegisters>
__device__ inline void wgmma(Register (&d)[kRegisters], const std::uint32_t (&a)[4],
                             std::uint64_t b, bool accumulate) {
  using Text = WgmmaText<kType>;
  static_assert(kRegisters == kType.n * bytes(kType.accumulator) / 8);
  static_assert(kRegisters == 32 || kRegisters == 64 || kRegisters == 128,
                "wgmma_registers.cuh has no register list of this length");
  static_assert(bits(kType.a) != 16, "the tail of 16-bit types names a major of a");
  if constexpr (kType.accumulator == DType::f32) {
    if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_32("+f");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_64("+f");
    else
      TCGEMM_WGMMA_128("+f");
  } else {
    if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_32("+r");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_64("+r");
    else
      TCGEMM_WGMMA_128("+r");
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
#undef TCGEMM_WGMMA_32
#undef TCGEMM_WGMMA_64
#undef TCGEMM_WGMMA_128

}  // namespace tcgemm::ptx
