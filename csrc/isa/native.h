// The machine code of an instruction: ptxas makes tensor-core instructions of it where the GPU has
// them (native), and emulates it by others elsewhere. Tests of lab/probe read the cubins.
#pragma once

#include "isa/mma_instruction.h"

namespace tcgemm::isa {

// The compute capabilities, times 10, whose tensor cores have the instruction; 0 is no limit.
struct NativeRange {
  int from;
  int to;
};

// mma.sync of eight rows and k = 4 is the instruction of Volta and Turing.
constexpr bool is_volta_f16(const Instruction& instruction) {
  return instruction.kind == InstructionKind::mma && instruction.input == DType::f16 &&
         instruction.k == 4;
}

constexpr NativeRange native_range(const Instruction& instruction) {
  constexpr int kAda = 89;
  const int from = instruction.oldest_capability();
  if (is_wgmma(instruction.kind)) return {90, 90};
  if (is_volta_f16(instruction)) return {70, 75};
  if (is_fp8(instruction.input) || is_int4(instruction.input) ||
      instruction.bit_operation == BitOperation::xor_popc)
    return {from, kAda};
  return {from, 0};
}

constexpr bool is_native(const Instruction& instruction, int capability) {
  const NativeRange range = native_range(instruction);
  return capability >= range.from && (!range.to || capability <= range.to);
}

// The tensor-core instructions of one PTX instruction, by their opcode up to the first dot. An
// emulation has others beside them: conversions, shifts and additions.
struct MachineCode {
  const char* opcode;
  int count;
};

constexpr MachineCode machine_code(const Instruction& instruction, int capability) {
  const bool native = is_native(instruction, capability);
  const bool group = is_wgmma(instruction.kind);
  int count = native ? 1 : 2;
  if (is_volta_f16(instruction) && !native) count = 0;
  if (instruction.kind == InstructionKind::wmma) {
    // A wmma of 16-bit and 8-bit elements is two of m16n8k16, of TF32 four of m16n8k4.
    if (instruction.m * instruction.n == 256) count = instruction.input == DType::tf32 ? 4 : 2;
  }
  switch (instruction.input) {
    case DType::f64: return {"DMMA", count};
    case DType::e4m3:
    case DType::e5m2: return {group ? "QGMMA" : native ? "QMMA" : "HMMA", count};
    case DType::b1: return {group ? "BGMMA" : "BMMA", count};
    case DType::s8:
    case DType::u8:
    case DType::s4:
    case DType::u4: return {group ? "IGMMA" : "IMMA", count};
    case DType::f16:
    case DType::bf16:
    case DType::tf32:
    case DType::f32:
    case DType::s32: break;
  }
  return {group ? "HGMMA" : "HMMA", count};
}

}  // namespace tcgemm::isa
