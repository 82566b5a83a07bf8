// mma.sync on f64 (PTX ISA 9.7.14.5.14): m16n8k16 of sm_90 and newer, which reaches 128
// multiplications per clock and multiprocessor, and m8n8k4 of sm_80, which reaches half there.
#pragma once

namespace tcgemm::ptx {

// lane = 4 * g + t, j = 0..3; an element is a pair of registers:
//   a[2j] row g, k t + 4j    a[2j + 1] row g + 8, k t + 4j    b[j] k t + 4j, column g
//   d: see tile/fragment.cuh
//
// d += a * b. Both only read and write registers, so they are not volatile, and the compiler may
// move them between loads.
__device__ inline void mma_f64(double* d, const double* a, const double* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

// The same fragments, by eight m8n8k4: two of eight rows for each four of k.
__device__ inline void mma_f64_sm80(double* d, const double* a, const double* b) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    double* const half = d + i % 2 * 2;
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(half[0]), "+d"(half[1])
        : "d"(a[i]), "d"(b[i / 2]));
  }
}

}  // namespace tcgemm::ptx
