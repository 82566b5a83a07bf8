// The C functions that tcgemm/emulate/ calls. They check nothing: Python has done it.
#include <iterator>
#include <new>
#include <random>
#include <string_view>

#include "emulate/epilogue.h"
#include "emulate/mma.h"
#include "isa/mma_instructions.h"
#include "isa/native.h"

namespace {

using namespace tcgemm;

// The group of types that a model's `input` stands for.
constexpr DType input_group(DType type) {
  switch (type) {
    case DType::bf16: return DType::f16;
    case DType::e5m2: return DType::e4m3;
    case DType::u8:
    case DType::s4:
    case DType::u4:
    case DType::b1: return DType::s8;
    case DType::f16:
    case DType::f32:
    case DType::f64:
    case DType::tf32:
    case DType::e4m3:
    case DType::s8:
    case DType::s32: break;
  }
  return type;
}

const emulate::Model* find_model(emulate::Gpu gpu, isa::InstructionKind kind,
                                 const isa::Instruction& instruction) {
  for (const emulate::Model& model : emulate::kModels)
    if (model.gpu == gpu && model.kind == kind && model.input == input_group(instruction.input) &&
        model.accumulator == instruction.accumulator)
      return &model;
  return nullptr;
}

const emulate::Model* find_model(emulate::Gpu gpu, const isa::Instruction& instruction) {
  const isa::InstructionKind kind = dense(instruction.kind);
  const emulate::Model* own = find_model(gpu, kind, instruction);
  if (own || kind != isa::InstructionKind::wmma) return own;
  return find_model(gpu, isa::InstructionKind::mma, instruction);
}

// Others have published results of the WMMA instruction: of floats with m16n16, made of mma.sync
// instructions whose results are known.
bool is_published_wmma(const emulate::Model& model, const isa::Instruction& instruction) {
  return instruction.m == 16 && instruction.n == 16 && !is_integer(instruction.accumulator) &&
         model.dense != emulate::Evidence::assumed;
}

emulate::Evidence evidence(const emulate::Model& model, const isa::Instruction& instruction) {
  using enum emulate::Evidence;
  if (instruction.kind == isa::InstructionKind::wmma)
    return is_published_wmma(model, instruction) ? published : assumed;
  // Tests on a Hopper GPU run the sparse instructions of our kernels, and each dense mma.sync.
  if (is_sparse(instruction.kind))
    return model.sparse == compared && !instruction.in_kernels ? assumed : model.sparse;
  if (is_subbyte(instruction.input))
    return model.gpu == emulate::Gpu::hopper && model.kind == isa::InstructionKind::mma ? compared
                                                                                        : assumed;
  return model.dense;
}

// A row of isa::kInstructions on one GPU. Texts are names; types are indices of DType.
struct InstructionRow {
  const char* gpu;
  const char* family;
  const char* input;
  const char* input_b;
  const char* accumulator;
  const char* evidence;
  const char* bit_operation;
  const char* opcode;  // of its tensor-core instructions on this GPU, of which there are so many
  std::int32_t opcode_count;
  std::int32_t native, native_from, native_to;
  std::int32_t m, n, k;
  std::int32_t sparse, in_kernels;
  std::int32_t type_a, type_b, type_c;
  emulate::Arithmetic arithmetic;
};

// The normal numbers of a C++ program, on which published experiments were run.
struct NormalStream {
  std::int64_t count;
  std::uint32_t seed;
  float* out;
};

}  // namespace

#define TCGEMM_EXPORT extern "C" __attribute__((visibility("default")))

// Fills `row` with the instruction `index` on the GPU `gpu`. 1: there is such a pair, 0: the GPU
// lacks the instruction, -1: the table or the list of GPUs has ended.
TCGEMM_EXPORT int tcgemm_lab_instruction(int index, int gpu, InstructionRow* row) {
  if (index >= int(std::size(isa::kInstructions)) || gpu > int(emulate::Gpu::hopper)) return -1;
  const isa::Instruction& instruction = isa::kInstructions[index];
  const auto of_gpu = emulate::Gpu(gpu);
  const emulate::Model* model = find_model(of_gpu, instruction);
  if (!model || !emulate::has(of_gpu, instruction)) return 0;
  const bool sparse = is_sparse(instruction.kind);
  emulate::Arithmetic arithmetic = model->arithmetic;
  const int stored = sparse ? instruction.k / 2 : instruction.k;
  const int of_block = arithmetic.method == emulate::Method::two_halves ? stored / 2 : stored;
  if (arithmetic.products > of_block) arithmetic.products = of_block;
  if (instruction.bit_operation == isa::BitOperation::xor_popc)
    arithmetic.method = emulate::Method::xor_popc;
  const int capability = emulate::compute_capability(of_gpu);
  const isa::MachineCode code = isa::machine_code(instruction, capability);
  *row = {emulate::name(of_gpu),
          isa::name(instruction.kind),
          name(instruction.input),
          name(instruction.input_b),
          name(instruction.accumulator),
          emulate::name(evidence(*model, instruction)),
          isa::name(instruction.bit_operation),
          code.opcode,
          code.count,
          isa::is_native(instruction, capability),
          isa::native_range(instruction).from,
          isa::native_range(instruction).to,
          instruction.m,
          instruction.n,
          instruction.k,
          sparse,
          instruction.in_kernels,
          int(instruction.input),
          int(instruction.input_b),
          int(instruction.accumulator),
          arithmetic};
  return 1;
}

// The size of what a function's last argument points to, so that a caller of another version stops.
TCGEMM_EXPORT int tcgemm_lab_size(const char* function) {
  const std::string_view name = function;
  return name == "instruction" ? int(sizeof(InstructionRow))
         : name == "mma"       ? int(sizeof(emulate::Mma))
         : name == "epilogue"  ? int(sizeof(emulate::Epilogue))
         : name == "normal"    ? int(sizeof(NormalStream))
                               : 0;
}

// 0, or 1 if there is not enough memory.
TCGEMM_EXPORT int tcgemm_lab_mma(const emulate::Mma* mma) {
  try {
    emulate::multiply(*mma);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

TCGEMM_EXPORT void tcgemm_lab_epilogue(const emulate::Epilogue* epilogue) {
  emulate::apply(*epilogue);
}

TCGEMM_EXPORT void tcgemm_lab_normal(const NormalStream* stream) {
  std::mt19937 engine(stream->seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < stream->count; ++i) stream->out[i] = normal(engine);
}
