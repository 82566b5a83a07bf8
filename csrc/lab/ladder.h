// The call of a step of a ladder, and its report; tcgemm/lab/ladder/call.py has the same structure.
// A step is a kernel of its own file, and its launch function stands at the file's end.
#pragma once

#include <cstdint>

namespace tcgemm::ladder {

struct Call {
  const char* step;  // "004_2_0"
  const void* a;
  const void* b;
  void* c;
  void* stream;
  // The clocks of each block, from its start to its end: only of 003, or null.
  std::int64_t* cycles;
  std::int32_t m, n, k;
  std::int32_t parameters[4];  // of the step's variant
  std::int32_t checks_only;    // nothing is launched, and no GPU is needed
  // Set by the step: what M, N and K have to be multiples of, and the largest that it takes or 0.
  std::int32_t multiples[3];
  std::int32_t largest[3];
  std::int32_t registers, static_shared, dynamic_shared, local_bytes, threads, blocks;
  char error[256];  // a sentence, or empty

  template <typename T>
  const T* operand_a() const {
    return static_cast<const T*>(a);
  }
  template <typename T>
  const T* operand_b() const {
    return static_cast<const T*>(b);
  }
  template <typename T>
  T* result() const {
    return static_cast<T*>(c);
  }
};

// Is the call to be launched? Writes the multiples, and an error if a size is none.
bool takes(Call& call, int m, int n, int k);
// The same for a step that computes one piece of a result, of at most these sizes (0: any).
bool takes_at_most(Call& call, int m, int n, int k, int largest_m, int largest_n, int largest_k);
void no_such_variant(Call& call);

struct Step {
  const char* name;
  void (*launch)(Call&);
};

void naive(Call&);  // 002
void block_tile(Call&);
void thread_tile(Call&);
void thread_tile_2d(Call&);
void wmma_tile(Call&);
void wmma_warp_tile(Call&);
void wmma_edges(Call&);
void f64_single(Call&);  // 001
void f64_row(Call&);
void f64_blocks(Call&);
void f64_tile(Call&);
void f64_shared_a(Call&);
void f64_shared_ab(Call&);
void f64_peak(Call&);
void wmma_f16(Call&);
void wmma_tf32(Call&);
void bf16_baseline(Call&);  // 003
void bf16_pipeline(Call&);
void bf16_permuted(Call&);
void bf16_both(Call&);
void mma_plain(Call&);  // 004
void mma_tiles(Call&);
void mma_vectors(Call&);
void mma_fragments_kept(Call&);
void mma_stages(Call&);
void mma_large_tiles(Call&);
void mma_outside(Call&);
void hgemm(Call&);  // 000

inline constexpr Step kSteps[] = {
    {"000_hgemm", hgemm},
    {"001_1_single", f64_single},
    {"001_2_row", f64_row},
    {"001_3_blocks", f64_blocks},
    {"001_4_tile", f64_tile},
    {"001_5_shared_a", f64_shared_a},
    {"001_6_shared_ab", f64_shared_ab},
    {"001_peak", f64_peak},
    {"001_f16", wmma_f16},
    {"001_tf32", wmma_tf32},
    {"002_0_naive", naive},
    {"002_1_block", block_tile},
    {"002_2_thread", thread_tile},
    {"002_3_thread2d", thread_tile_2d},
    {"002_4_wmma", wmma_tile},
    {"002_5_warp_tile", wmma_warp_tile},
    {"002_6_edges", wmma_edges},
    {"003_baseline", bf16_baseline},
    {"003_pipeline", bf16_pipeline},
    {"003_permuted", bf16_permuted},
    {"003_both", bf16_both},
    {"004_1_0", mma_plain},
    {"004_1_1", mma_tiles},
    {"004_2_0", mma_vectors},
    {"004_2_1", mma_fragments_kept},
    {"004_3_0", mma_stages},
    {"004_3_1", mma_large_tiles},
    {"004_3_2_outside", mma_outside},
};

}  // namespace tcgemm::ladder
