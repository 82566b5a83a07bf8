// How each generation of tensor cores adds. docs/dev/numerics.md explains the columns and has the
// sources.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "isa/mma_instruction.h"

namespace tcgemm::emulate {

enum class Gpu : std::uint8_t { volta, turing, ampere, ada, hopper };

constexpr const char* name(Gpu gpu) {
  switch (gpu) {
    case Gpu::volta: return "Volta";
    case Gpu::turing: return "Turing";
    case Gpu::ampere: return "Ampere";
    case Gpu::ada: return "Ada";
    case Gpu::hopper: return "Hopper";
  }
  return "";
}

constexpr int compute_capability(Gpu gpu) {
  switch (gpu) {
    case Gpu::volta: return 70;
    case Gpu::turing: return 75;
    case Gpu::ampere: return 80;
    case Gpu::ada: return 89;
    case Gpu::hopper: return 90;
  }
  return 0;
}

// The GPU has the instruction. WGMMA exists on Hopper alone.
constexpr bool has(Gpu gpu, const isa::Instruction& instruction) {
  const int capability = compute_capability(gpu);
  return capability >= instruction.oldest_capability() &&
         (instruction.newest == 0 || capability <= instruction.newest);
}

enum class Method : std::int32_t {
  blocks,      // sums of `products` products and the accumulator, one after the other
  two_halves,  // FP8 that ptxas widens to FP16: two sums of half of the products, then an addition
  fma_chain,   // correctly rounded FMAs in ascending k
  integer,     // exact, modulo 2^32
  xor_popc,    // one-bit operands: how many pairs of bits differ; exact, modulo 2^32
};

// The conversion of a block's sum to the accumulator.
enum class Rounding : std::int32_t {
  truncate_24,  // to 24 significant bits: FP32, toward zero
  truncate_14,  // to 14 significant bits, stored as FP32, toward zero
  nearest_f16,  // FP16, to nearest even
};

// Where the numbers of a row come from.
enum class Evidence : std::uint8_t {
  recorded,   // recordings of an H200 in the tests
  compared,   // a test compares on a GPU
  published,  // recordings that others have published
  assumed,    // a description or an analogy; nobody compared bits
};

constexpr const char* name(Evidence evidence) {
  switch (evidence) {
    case Evidence::recorded: return "recorded";
    case Evidence::compared: return "compared";
    case Evidence::published: return "published";
    case Evidence::assumed: return "assumed";
  }
  return "";
}

// No exponent is below this one. FP32 operands of a product have exponents from -149 on.
inline constexpr std::int32_t kNoLowestExponent = -1000;

struct Arithmetic {
  Method method = Method::blocks;
  std::int32_t products = 0;       // of one block; at most the products of an instruction
  std::int32_t fraction_bits = 0;  // an addend keeps so many bits below the largest exponent
  std::int32_t lowest_exponent = kNoLowestExponent;  // the largest exponent counts at least as this
  Rounding rounding = Rounding::truncate_24;
};

// `input` stands for a group of types: f16 (with bf16), tf32, e4m3 (all FP8), f64, s8 (with u8, s4,
// u4 and b1). The sparse kinds compute as the dense ones with the products of the stored elements,
// and wmma without a row of its own as mma: ptxas makes the same instructions of both.
struct Model {
  Gpu gpu;
  isa::InstructionKind kind;  // mma, wgmma or wmma
  DType input;
  DType accumulator;
  Arithmetic arithmetic;
  Evidence dense;
  Evidence sparse;
};

using enum Method;
using enum Rounding;
using enum Evidence;
using enum DType;
using enum isa::InstructionKind;

inline constexpr Model kModels[] = {
    {Gpu::volta, mma, f16, f32, {blocks, 4, 23, kNoLowestExponent}, published, assumed},
    {Gpu::volta, mma, f16, f16, {blocks, 4, 23, -19, nearest_f16}, published, assumed},
    {Gpu::turing, mma, f16, f32, {blocks, 8, 24, -132}, assumed, assumed},
    {Gpu::turing, mma, f16, f16, {blocks, 8, 24, -20, nearest_f16}, assumed, assumed},
    {Gpu::turing, mma, s8, s32, {integer}, published, assumed},
    {Gpu::ampere, mma, f16, f32, {blocks, 8, 24, -132}, published, assumed},
    {Gpu::ampere, mma, f16, f16, {blocks, 8, 24, -20, nearest_f16}, published, assumed},
    {Gpu::ampere, mma, tf32, f32, {blocks, 4, 24, -132}, published, assumed},
    {Gpu::ampere, mma, f64, f64, {fma_chain}, published, assumed},
    {Gpu::ampere, mma, s8, s32, {integer}, published, assumed},
    {Gpu::ada, mma, f16, f32, {blocks, 8, 24, -132}, published, assumed},
    {Gpu::ada, mma, f16, f16, {blocks, 8, 24, -20, nearest_f16}, published, assumed},
    {Gpu::ada, mma, tf32, f32, {blocks, 4, 24, -132}, published, assumed},
    {Gpu::ada, mma, e4m3, f32, {blocks, 16, 13, -132, truncate_14}, published, assumed},
    {Gpu::ada, mma, e4m3, f16, {blocks, 16, 13, -20, nearest_f16}, published, assumed},
    {Gpu::ada, mma, f64, f64, {fma_chain}, assumed, assumed},
    {Gpu::ada, mma, s8, s32, {integer}, published, assumed},
    {Gpu::hopper, mma, f16, f32, {blocks, 16, 25, -133}, recorded, recorded},
    {Gpu::hopper, mma, f16, f16, {blocks, 16, 25, -21, nearest_f16}, recorded, assumed},
    {Gpu::hopper, mma, tf32, f32, {blocks, 8, 25, -133}, recorded, recorded},
    {Gpu::hopper, mma, e4m3, f32, {two_halves, 16, 25, -133}, recorded, recorded},
    {Gpu::hopper, mma, e4m3, f16, {two_halves, 16, 25, -21, nearest_f16}, recorded, assumed},
    {Gpu::hopper, mma, f64, f64, {fma_chain}, recorded, assumed},
    {Gpu::hopper, mma, s8, s32, {integer}, recorded, compared},
    // ptxas makes two m16n8k4 of an m16n16k8.
    {Gpu::hopper, wmma, tf32, f32, {blocks, 4, 25, -133}, published, assumed},
    {Gpu::hopper, wgmma, f16, f32, {blocks, 16, 25, -133}, recorded, recorded},
    {Gpu::hopper, wgmma, f16, f16, {blocks, 16, 25, -21, nearest_f16}, recorded, assumed},
    {Gpu::hopper, wgmma, tf32, f32, {blocks, 8, 25, -133}, recorded, recorded},
    {Gpu::hopper, wgmma, e4m3, f32, {blocks, 32, 13, -133, truncate_14}, recorded, recorded},
    {Gpu::hopper, wgmma, e4m3, f16, {blocks, 32, 13, -21, nearest_f16}, recorded, assumed},
    {Gpu::hopper, wgmma, s8, s32, {integer}, recorded, compared},
};

}  // namespace tcgemm::emulate
