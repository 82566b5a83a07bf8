// mma.sync.m16n8k16 on f64, sm_90 and newer (PTX ISA 9.7.14.5.14). This shape reaches 128
// multiplications per clock and multiprocessor; m8n8k4, the shape of sm_80, reaches half of that.
#pragma once

namespace tcgemm::ptx {

// lane = 4 * g + t, j = 0..3; an element is a pair of registers:
//   a[2j] row g, k t + 4j    a[2j + 1] row g + 8, k t + 4j    b[j] k t + 4j, column g
//   d: see tile/fragment.cuh
//
// d += a * b. It only reads and writes registers, so it is not volatile, and the compiler may move
// it between loads.
__device__ inline void mma_f64(double* d, const double* a, const double* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

}  // namespace tcgemm::ptx
