// What one tensor-core instruction is: the row type of instructions.h.
#pragma once

#include <cstdint>

#include "core/arch.h"
#include "core/dtype.h"

namespace tcgemm::isa {

// The sparse ones take an a that is sparse along k (core/sparse.h).
enum class InstructionKind : std::uint8_t { mma, mma_sparse, wgmma, wgmma_sparse };

constexpr const char* name(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::mma:
      return "mma.sync";
    case InstructionKind::mma_sparse:
      return "mma.sp";
    case InstructionKind::wgmma:
      return "wgmma";
    default:
      return "wgmma.sp";
  }
}

// m x n x k of the product that one warp (mma) or one warpgroup of four (wgmma) issues at once. For
// wgmma, n is the largest of the multiples of n_step that exist.
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
  bool mn_major;  // shared-memory operands may be MN-major (wgmma), or ldmatrix.trans serves them
                  // (mma)
};

}  // namespace tcgemm::isa
