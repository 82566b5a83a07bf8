// wgmma, the MMA of a warpgroup (PTX ISA 9.7.15.5). b is in shared memory; a is in shared memory
// (SS) or in registers (RS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/dtype.h"
#include "core/layout.h"

namespace tcgemm::ptx {

// The accumulators of one m64nN block are N/2 registers a thread for f32 and s32, and N/4 registers
// of pairs for f16. Element i of a thread is row 16 * warp + lane / 4 + 8 * ((i >> 1) & 1),
// column 8 * (i >> 2) + 2 * (lane % 4) + (i & 1).

// Must precede the first wgmma after other instructions have accessed the accumulators, or the
// registers of a.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kGroups of the committed groups are in flight.
template <int kGroups>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// Keeps reads of these registers after this point. It follows the wait for their group: without it
// the compiler may move a read before the wait, and ptxas then serialises the groups (C7514).
template <class Register, int kRegisters>
__device__ inline void wgmma_results(Register (&d)[kRegisters]) {
#pragma unroll
  for (Register& x : d) {
    if constexpr (std::is_same_v<Register, float>)
      asm volatile("" : "+f"(x)::"memory");
    else
      asm volatile("" : "+r"(x)::"memory");
  }
}

// Shared-memory descriptor of an operand tile (9.7.15.5.1.2). The tile has kRowBytes, 128 or 64,
// along k. It is a sequence of blocks, each with 64 elements along m or n and the whole of k:
//   K-major : 64 rows of kRowBytes with a swizzle of kRowBytes. SBO is the size of a group of 8
//             rows; the hardware does not read LBO.
//   MN-major: a row of 128 bytes for each k, with the 128-byte swizzle. SBO is 1024 bytes, the
//             distance of groups of 8 k. LBO is the size of a block, the distance of groups of 64
//             elements along m or n.
// A step along k changes the low word only: see kDescriptorStep.
template <Major kMajor = Major::K, int kRowBytes = 128>
__host__ __device__ constexpr std::uint64_t wgmma_descriptor(std::uint32_t shared) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  constexpr std::uint64_t kGroup = kMajor == Major::K ? 8 * kRowBytes : 1024;
  constexpr std::uint64_t kSwizzle = kGroup == 1024 ? 1 : 2;
  constexpr std::uint64_t kBlockBytes = 64 * kRowBytes;
  return kSwizzle << 62 | kGroup >> 4 << 32 | kBlockBytes >> 4 << 16 | (shared & 0x3ffff) >> 4;
}

// The increment of a descriptor for the k of one instruction, 32 bytes: 32 bytes in a K-major row,
// or 16 rows of an MN-major block.
template <Major kMajor>
inline constexpr std::uint64_t kDescriptorStep = kMajor == Major::K ? 32 >> 4 : 2048 >> 4;

// Shape and types of a wgmma, from which its PTX text follows.
struct WgmmaType {
  int n;
  DType a, b, accumulator;
  Layout layout;
  bool sparse = false;  // a is sparse along k; the k of an instruction is 64 bytes instead of 32
  bool a_in_registers = false;  // set for 16-bit types alone, whose text then has no major of a
};

// The PTX text of a type: `shape`, such as "m64n256k16.f32.bf16.bf16", and `tail`, the operands
// after the predicate. These are the signs of a and b, except for integers, and for 16-bit types
// the majors of a and b. The "C" constraint inserts a constexpr array of char into the asm, so both
// are built character by character.
template <WgmmaType kType>
struct WgmmaSpelling {
  char shape[40] = {};
  char tail[16] = {};
  int shape_length = 0;
  int tail_length = 0;

  constexpr WgmmaSpelling() {
    const auto add = [](char* letters, int& length, const char* text) {
      while (*text) letters[length++] = *text++;
    };
    const auto number = [&](int value) {
      if (value >= 100) shape[shape_length++] = char('0' + value / 100);
      if (value >= 10) shape[shape_length++] = char('0' + value / 10 % 10);
      shape[shape_length++] = char('0' + value % 10);
    };
    add(shape, shape_length, "m64n");
    number(kType.n);
    add(shape, shape_length, "k");
    number((kType.sparse ? 512 : 256) / bits(kType.a));
    for (DType type : {kType.accumulator, kType.a, kType.b}) {
      add(shape, shape_length, ".");
      add(shape, shape_length, name(type));
    }
    if (kType.a == DType::b1) add(shape, shape_length, ".and.popc");
    if (!is_integer(kType.a)) add(tail, tail_length, ", 1, 1");
    if (bits(kType.a) == 16) {
      if (!kType.a_in_registers)
        add(tail, tail_length, major_a(kType.layout) == Major::MN ? ", 1" : ", 0");
      add(tail, tail_length, major_b(kType.layout) == Major::MN ? ", 1" : ", 0");
    }
  }
};

template <WgmmaType kType, class Shape, class Tail>
struct WgmmaLetters;

template <WgmmaType kType, std::size_t... kShape, std::size_t... kTail>
struct WgmmaLetters<kType, std::index_sequence<kShape...>, std::index_sequence<kTail...>> {
  static constexpr WgmmaSpelling<kType> kSpelling{};
  static constexpr char shape[] = {kSpelling.shape[kShape]..., '\0'};
  static constexpr char tail[] = {kSpelling.tail[kTail]..., '\0'};
};

template <WgmmaType kType>
using WgmmaText = WgmmaLetters<kType, std::make_index_sequence<WgmmaSpelling<kType>{}.shape_length>,
                               std::make_index_sequence<WgmmaSpelling<kType>{}.tail_length>>;

#define TCGEMM_P0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TCGEMM_P1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TCGEMM_P2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TCGEMM_P3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TCGEMM_P4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TCGEMM_P5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TCGEMM_P6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define TCGEMM_P7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TCGEMM_P1_HALF "%16,%17,%18,%19,%20,%21,%22,%23"
#define TCGEMM_P2_HALF "%32,%33,%34,%35,%36,%37,%38,%39"
#define TCGEMM_P3_HALF "%48,%49,%50,%51,%52,%53,%54,%55"
#define TCGEMM_P4_HALF "%64,%65,%66,%67,%68,%69,%70,%71"
#define TCGEMM_P5_HALF "%80,%81,%82,%83,%84,%85,%86,%87"
#define TCGEMM_P6_HALF "%96,%97,%98,%99,%100,%101,%102,%103"
#define TCGEMM_D4(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define TCGEMM_D16(C, i) \
  TCGEMM_D4(C, i), TCGEMM_D4(C, i + 4), TCGEMM_D4(C, i + 8), TCGEMM_D4(C, i + 12)
#define TCGEMM_D8(C, i) TCGEMM_D4(C, i), TCGEMM_D4(C, i + 4)
#define TCGEMM_D64(C, i) \
  TCGEMM_D16(C, i), TCGEMM_D16(C, i + 16), TCGEMM_D16(C, i + 32), TCGEMM_D16(C, i + 48)
// The numbers of the asm operands after the accumulators are A, B, SCALE, SHAPE and TAIL. INPUT is
// the operand of A. For a sparse a, B also has the numbers of the metadata and of its selector.
#define TCGEMM_WGMMA(SP, P, A, INPUT, B, SCALE, SHAPE, TAIL, ...)                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE ", 0;\nwgmma.mma_async" SP \
               ".sync.aligned.%" SHAPE " {" P "}, " A ", %" B ", p%" TAIL ";\n}\n"   \
               : __VA_ARGS__                                                         \
               : INPUT, "l"(b), "r"(int(accumulate)), "C"(Text::shape), "C"(Text::tail))
#define TCGEMM_SHARED "l"(a)
#define TCGEMM_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define TCGEMM_WGMMA_16(C) \
  TCGEMM_WGMMA("", TCGEMM_P0, "%16", TCGEMM_SHARED, "17", "18", "19", "20", TCGEMM_D16(C, 0))
#define TCGEMM_WGMMA_24(C)                                                                     \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1_HALF, "%24", TCGEMM_SHARED, "25", "26", "27", "28", \
               TCGEMM_D16(C, 0), TCGEMM_D8(C, 16))
#define TCGEMM_WGMMA_32(C)                                                                \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1, "%32", TCGEMM_SHARED, "33", "34", "35", "36", \
               TCGEMM_D16(C, 0), TCGEMM_D16(C, 16))
#define TCGEMM_WGMMA_40(C)                                                                       \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2_HALF, "%40", TCGEMM_SHARED, "41", "42", \
               "43", "44", TCGEMM_D16(C, 0), TCGEMM_D16(C, 16), TCGEMM_D8(C, 32))
#define TCGEMM_WGMMA_48(C)                                                                        \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2, "%48", TCGEMM_SHARED, "49", "50", "51", \
               "52", TCGEMM_D16(C, 0), TCGEMM_D16(C, 16), TCGEMM_D16(C, 32))
#define TCGEMM_WGMMA_56(C)                                                                         \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3_HALF, "%56", TCGEMM_SHARED, \
               "57", "58", "59", "60", TCGEMM_D16(C, 0), TCGEMM_D16(C, 16), TCGEMM_D16(C, 32),     \
               TCGEMM_D8(C, 48))
#define TCGEMM_WGMMA_64(C)                                                                    \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "%64", TCGEMM_SHARED, \
               "65", "66", "67", "68", TCGEMM_D64(C, 0))
#define TCGEMM_WGMMA_72(C)                                                                        \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4_HALF, "%72", \
               TCGEMM_SHARED, "73", "74", "75", "76", TCGEMM_D64(C, 0), TCGEMM_D8(C, 64))
#define TCGEMM_WGMMA_80(C)                                                                   \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4, "%80", \
               TCGEMM_SHARED, "81", "82", "83", "84", TCGEMM_D64(C, 0), TCGEMM_D16(C, 64))
#define TCGEMM_WGMMA_88(C)                                                                      \
  TCGEMM_WGMMA(                                                                                 \
      "", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5_HALF, \
      "%88", TCGEMM_SHARED, "89", "90", "91", "92", TCGEMM_D64(C, 0), TCGEMM_D16(C, 64),        \
      TCGEMM_D8(C, 80))
#define TCGEMM_WGMMA_96(C)                                                                         \
  TCGEMM_WGMMA("",                                                                                 \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5,    \
               "%96", TCGEMM_SHARED, "97", "98", "99", "100", TCGEMM_D64(C, 0), TCGEMM_D16(C, 64), \
               TCGEMM_D16(C, 80))
#define TCGEMM_WGMMA_104(C)                                                                    \
  TCGEMM_WGMMA("",                                                                             \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5 \
                         "," TCGEMM_P6_HALF,                                                   \
               "%104", TCGEMM_SHARED, "105", "106", "107", "108", TCGEMM_D64(C, 0),            \
               TCGEMM_D16(C, 64), TCGEMM_D16(C, 80), TCGEMM_D8(C, 96))
#define TCGEMM_WGMMA_112(C)                                                                    \
  TCGEMM_WGMMA("",                                                                             \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5 \
                         "," TCGEMM_P6,                                                        \
               "%112", TCGEMM_SHARED, "113", "114", "115", "116", TCGEMM_D64(C, 0),            \
               TCGEMM_D16(C, 64), TCGEMM_D16(C, 80), TCGEMM_D16(C, 96))
#define TCGEMM_WGMMA_128(C)                                                                    \
  TCGEMM_WGMMA("",                                                                             \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5 \
                         "," TCGEMM_P6 "," TCGEMM_P7,                                          \
               "%128", TCGEMM_SHARED, "129", "130", "131", "132", TCGEMM_D64(C, 0),            \
               TCGEMM_D64(C, 64))
#define TCGEMM_WGMMA_A_16(C)                                                                 \
  TCGEMM_WGMMA("", TCGEMM_P0, "{%16,%17,%18,%19}", TCGEMM_REGISTERS, "20", "21", "22", "23", \
               TCGEMM_D16(C, 0))
#define TCGEMM_WGMMA_A_32(C)                                                                   \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1, "{%32,%33,%34,%35}", TCGEMM_REGISTERS, "36", "37", \
               "38", "39", TCGEMM_D16(C, 0), TCGEMM_D16(C, 16))
#define TCGEMM_WGMMA_A_64(C)                                                                 \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "{%64,%65,%66,%67}", \
               TCGEMM_REGISTERS, "68", "69", "70", "71", TCGEMM_D64(C, 0))
#define TCGEMM_WGMMA_A_80(C)                                                                    \
  TCGEMM_WGMMA("", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4,           \
               "{%80,%81,%82,%83}", TCGEMM_REGISTERS, "84", "85", "86", "87", TCGEMM_D64(C, 0), \
               TCGEMM_D16(C, 64))
#define TCGEMM_WGMMA_A_96(C)                                                                    \
  TCGEMM_WGMMA("",                                                                              \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5, \
               "{%96,%97,%98,%99}", TCGEMM_REGISTERS, "100", "101", "102", "103",               \
               TCGEMM_D64(C, 0), TCGEMM_D16(C, 64), TCGEMM_D16(C, 80))
#define TCGEMM_WGMMA_A_128(C)                                                                  \
  TCGEMM_WGMMA("",                                                                             \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5 \
                         "," TCGEMM_P6 "," TCGEMM_P7,                                          \
               "{%128,%129,%130,%131}", TCGEMM_REGISTERS, "132", "133", "134", "135",          \
               TCGEMM_D64(C, 0), TCGEMM_D64(C, 64))

#define TCGEMM_SPARSE "l"(a), "r"(metadata), "n"(kSelector)
#define TCGEMM_WGMMA_SP_16(C)                                                            \
  TCGEMM_WGMMA(".sp", TCGEMM_P0, "%16", TCGEMM_SPARSE, "19, %17, %18", "20", "21", "22", \
               TCGEMM_D16(C, 0))
#define TCGEMM_WGMMA_SP_32(C)                                                                    \
  TCGEMM_WGMMA(".sp", TCGEMM_P0 "," TCGEMM_P1, "%32", TCGEMM_SPARSE, "35, %33, %34", "36", "37", \
               "38", TCGEMM_D16(C, 0), TCGEMM_D16(C, 16))
#define TCGEMM_WGMMA_SP_64(C)                                                                    \
  TCGEMM_WGMMA(".sp", TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3, "%64", TCGEMM_SPARSE, \
               "67, %65, %66", "68", "69", "70", TCGEMM_D64(C, 0))
#define TCGEMM_WGMMA_SP_96(C)                                                                   \
  TCGEMM_WGMMA(".sp",                                                                           \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5, \
               "%96", TCGEMM_SPARSE, "99, %97, %98", "100", "101", "102", TCGEMM_D64(C, 0),     \
               TCGEMM_D16(C, 64), TCGEMM_D16(C, 80))
#define TCGEMM_WGMMA_SP_128(C)                                                                  \
  TCGEMM_WGMMA(".sp",                                                                           \
               TCGEMM_P0 "," TCGEMM_P1 "," TCGEMM_P2 "," TCGEMM_P3 "," TCGEMM_P4 "," TCGEMM_P5  \
                         "," TCGEMM_P6 "," TCGEMM_P7,                                           \
               "%128", TCGEMM_SPARSE, "131, %129, %130", "132", "133", "134", TCGEMM_D64(C, 0), \
               TCGEMM_D64(C, 64))

// d = a * b + (accumulate ? d : 0), over the k of one instruction.
template <WgmmaType kType, class Register, int kRegisters>
__device__ inline void wgmma(Register (&d)[kRegisters], std::uint64_t a, std::uint64_t b,
                             bool accumulate) {
  using Text = WgmmaText<kType>;
  static_assert(kRegisters == kType.n * bytes(kType.accumulator) / 8);
  static_assert(kRegisters == 16 || kRegisters == 24 || kRegisters == 32 || kRegisters == 40 ||
                    kRegisters == 48 || kRegisters == 56 || kRegisters == 64 || kRegisters == 72 ||
                    kRegisters == 80 || kRegisters == 88 || kRegisters == 96 || kRegisters == 104 ||
                    kRegisters == 112 || kRegisters == 128,
                "wgmma.cuh has no register list of this length");
  if constexpr (kType.accumulator == DType::f32) {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA_16("+f");
    else if constexpr (kRegisters == 24)
      TCGEMM_WGMMA_24("+f");
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_32("+f");
    else if constexpr (kRegisters == 40)
      TCGEMM_WGMMA_40("+f");
    else if constexpr (kRegisters == 48)
      TCGEMM_WGMMA_48("+f");
    else if constexpr (kRegisters == 56)
      TCGEMM_WGMMA_56("+f");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_64("+f");
    else if constexpr (kRegisters == 72)
      TCGEMM_WGMMA_72("+f");
    else if constexpr (kRegisters == 80)
      TCGEMM_WGMMA_80("+f");
    else if constexpr (kRegisters == 88)
      TCGEMM_WGMMA_88("+f");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_96("+f");
    else if constexpr (kRegisters == 104)
      TCGEMM_WGMMA_104("+f");
    else if constexpr (kRegisters == 112)
      TCGEMM_WGMMA_112("+f");
    else
      TCGEMM_WGMMA_128("+f");
  } else {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA_16("+r");
    else if constexpr (kRegisters == 24)
      TCGEMM_WGMMA_24("+r");
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_32("+r");
    else if constexpr (kRegisters == 40)
      TCGEMM_WGMMA_40("+r");
    else if constexpr (kRegisters == 48)
      TCGEMM_WGMMA_48("+r");
    else if constexpr (kRegisters == 56)
      TCGEMM_WGMMA_56("+r");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_64("+r");
    else if constexpr (kRegisters == 72)
      TCGEMM_WGMMA_72("+r");
    else if constexpr (kRegisters == 80)
      TCGEMM_WGMMA_80("+r");
    else if constexpr (kRegisters == 88)
      TCGEMM_WGMMA_88("+r");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_96("+r");
    else if constexpr (kRegisters == 104)
      TCGEMM_WGMMA_104("+r");
    else if constexpr (kRegisters == 112)
      TCGEMM_WGMMA_112("+r");
    else
      TCGEMM_WGMMA_128("+r");
  }
}

// The RS variant. A warp holds 16 rows and 32 bytes along k of a, in the fragment layout of
// mma.sync's m16; lane = 4 * g + t:
//   a[0] row g,     bytes 4t ..       a[2] row g,     bytes 4t + 16 ..
//   a[1] row g + 8, bytes 4t ..       a[3] row g + 8, bytes 4t + 16 ..
// The registers of a must not change before the wait for the group that reads them. b is K-major.
template <WgmmaType kType, class Register, int kRegisters>
__device__ inline void wgmma(Register (&d)[kRegisters], const std::uint32_t (&a)[4],
                             std::uint64_t b, bool accumulate) {
  using Text = WgmmaText<kType>;
  static_assert(kRegisters == kType.n * bytes(kType.accumulator) / 8);
  static_assert(kRegisters == 16 || kRegisters == 32 || kRegisters == 64 || kRegisters == 80 ||
                    kRegisters == 96 || kRegisters == 128,
                "wgmma.cuh has no register list of this length");
  static_assert(kType.a_in_registers == (bits(kType.a) == 16));
  if constexpr (kType.accumulator == DType::f32) {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA_A_16("+f");
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_A_32("+f");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_A_64("+f");
    else if constexpr (kRegisters == 80)
      TCGEMM_WGMMA_A_80("+f");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_A_96("+f");
    else
      TCGEMM_WGMMA_A_128("+f");
  } else {
    if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_A_32("+r");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_A_64("+r");
    else if constexpr (kRegisters == 80)
      TCGEMM_WGMMA_A_80("+r");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_A_96("+r");
    else
      TCGEMM_WGMMA_A_128("+r");
  }
}

// wgmma.sp: a is sparse and has 32 bytes of values along k in shared memory. kSelector is the
// k-step in core/sparse.h; it selects the lanes whose metadata the instruction reads. The metadata
// register must not change before the wait for the group that reads it.
template <WgmmaType kType, int kSelector, class Register, int kRegisters>
__device__ inline void wgmma_sparse(Register (&d)[kRegisters], std::uint64_t a,
                                    std::uint32_t metadata, std::uint64_t b, bool accumulate) {
  using Text = WgmmaText<kType>;
  static_assert(kType.sparse && kRegisters == kType.n * bytes(kType.accumulator) / 8);
  static_assert(kRegisters == 16 || kRegisters == 32 || kRegisters == 64 || kRegisters == 96 ||
                    kRegisters == 128,
                "wgmma.cuh has no register list of this length");
  if constexpr (kType.accumulator == DType::f32) {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA_SP_16("+f");
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_SP_32("+f");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_SP_64("+f");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_SP_96("+f");
    else
      TCGEMM_WGMMA_SP_128("+f");
  } else {
    if constexpr (kRegisters == 16)
      TCGEMM_WGMMA_SP_16("+r");
    else if constexpr (kRegisters == 32)
      TCGEMM_WGMMA_SP_32("+r");
    else if constexpr (kRegisters == 64)
      TCGEMM_WGMMA_SP_64("+r");
    else if constexpr (kRegisters == 96)
      TCGEMM_WGMMA_SP_96("+r");
    else
      TCGEMM_WGMMA_SP_128("+r");
  }
}

#undef TCGEMM_WGMMA_SP_16
#undef TCGEMM_WGMMA_SP_32
#undef TCGEMM_WGMMA_SP_64
#undef TCGEMM_WGMMA_SP_96
#undef TCGEMM_WGMMA_SP_128
#undef TCGEMM_SPARSE
#undef TCGEMM_WGMMA_A_16
#undef TCGEMM_WGMMA_A_32
#undef TCGEMM_WGMMA_A_64
#undef TCGEMM_WGMMA_A_80
#undef TCGEMM_WGMMA_A_96
#undef TCGEMM_WGMMA_A_128
#undef TCGEMM_SHARED
#undef TCGEMM_REGISTERS
#undef TCGEMM_WGMMA_16
#undef TCGEMM_WGMMA_24
#undef TCGEMM_WGMMA_32
#undef TCGEMM_WGMMA_40
#undef TCGEMM_WGMMA_48
#undef TCGEMM_WGMMA_56
#undef TCGEMM_WGMMA_64
#undef TCGEMM_WGMMA_72
#undef TCGEMM_WGMMA_80
#undef TCGEMM_WGMMA_88
#undef TCGEMM_WGMMA_96
#undef TCGEMM_WGMMA_104
#undef TCGEMM_WGMMA_112
#undef TCGEMM_WGMMA_128
#undef TCGEMM_P0
#undef TCGEMM_P1
#undef TCGEMM_P2
#undef TCGEMM_P3
#undef TCGEMM_P4
#undef TCGEMM_P5
#undef TCGEMM_P6
#undef TCGEMM_P7
#undef TCGEMM_P1_HALF
#undef TCGEMM_P4_HALF
#undef TCGEMM_P5_HALF
#undef TCGEMM_P6_HALF
#undef TCGEMM_D4
#undef TCGEMM_D8
#undef TCGEMM_D16
#undef TCGEMM_D64
#undef TCGEMM_WGMMA

}  // namespace tcgemm::ptx
