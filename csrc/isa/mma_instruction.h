// The description of one tensor-core instruction; isa/mma_instructions.h has the table.
#pragma once

#include <cstdint>

#include "core/arch.h"
#include "core/dtype.h"

namespace tcgemm::isa {

// The operand a of the sparse kinds is sparse along k (core/sparse.h).
enum class InstructionKind : std::uint8_t { mma, mma_sparse, wgmma, wgmma_sparse, wmma };

// Instructions of one-bit operands count ones: of a & b, or of a ^ b.
enum class BitOperation : std::uint8_t { none, and_popc, xor_popc };

constexpr const char* name(BitOperation operation) {
  switch (operation) {
    case BitOperation::none: break;
    case BitOperation::and_popc: return "and.popc";
    case BitOperation::xor_popc: return "xor.popc";
  }
  return "";
}

constexpr const char* name(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::mma: return "mma.sync";
    case InstructionKind::mma_sparse: return "mma.sp";
    case InstructionKind::wgmma: return "wgmma";
    case InstructionKind::wgmma_sparse: return "wgmma.sp";
    case InstructionKind::wmma: return "wmma";
  }
  return "";
}

// The kind without sparsity.
constexpr InstructionKind dense(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::mma_sparse: return InstructionKind::mma;
    case InstructionKind::wgmma_sparse: return InstructionKind::wgmma;
    case InstructionKind::mma:
    case InstructionKind::wgmma:
    case InstructionKind::wmma: break;
  }
  return kind;
}

constexpr bool is_sparse(InstructionKind kind) { return kind != dense(kind); }
constexpr bool is_wgmma(InstructionKind kind) { return dense(kind) == InstructionKind::wgmma; }

// m x n x k is the shape of one instruction, which a warp (mma, wmma) or a warpgroup of four warps
// (wgmma) issues. For wgmma, n is the largest one; all smaller multiples of n_step exist too.
struct Instruction {
  InstructionKind kind;
  Arch arch;
  DType input;    // of a
  DType input_b;  // of b
  DType accumulator;
  int m;
  int n;
  int k;
  int n_step;
  // Operands may be MN-major: in shared memory (wgmma), or by ldmatrix.trans (mma).
  bool mn_major;
  // The kernels use it. The others are for csrc/emulate/.
  bool in_kernels = true;
  // The compute capabilities, times 10, that have it: 0 is the one of `arch`, and no limit.
  int oldest = 0;
  int newest = 0;
  BitOperation bit_operation = BitOperation::none;

  constexpr int oldest_capability() const { return oldest ? oldest : compute_capability(arch); }
};

}  // namespace tcgemm::isa
