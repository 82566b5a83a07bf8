// The question _plan: Problem -> Plan -> JSON, for a GPU by name, without tensors.
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "catalog.h"
#include "core/dtype_rules.h"
#include "core/integer.h"
#include "core/params.h"
#include "core/plan.h"
#include "core/problem.h"
#include "ops/describe/explain.h"
#include "ops/error.h"
#include "ops/json.h"
#include "ops/operators.h"
#include "ops/product/batch_invariant.h"
#include "ops/stack_reader.h"
#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

using Strides = std::array<std::int64_t, 3>;  // batch, row, column; elements

// The arguments of the operator, in the order of its schema.
struct Question {
  std::string device, dtype;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::string layout, dtype_b, precision, accumulator, out_dtype;
  std::optional<Strides> a, b, out;
  std::uintptr_t a_address = 0, b_address = 0, out_address = 0;
  double alpha = 1;
  std::string scale_a, scale_b, epilogue;
  int terms_b = 0;
  std::string sparse, kernel;
};

std::optional<Strides> read_strides(const char* name, StackReader& reader) {
  const auto integers = reader.optional_integers();
  if (!integers) return std::nullopt;
  if (integers->size() != 3)
    fail("tcgemm: the strides of ", name, " are ", std::int64_t(integers->size()),
         " numbers; expected 3, of batch, row and column.");
  return Strides{(*integers)[0], (*integers)[1], (*integers)[2]};
}

Question read(std::uint64_t* stack) {
  StackReader reader(stack);
  Question question;
  question.device = reader.string();
  question.dtype = reader.string();
  for (std::int64_t* size : {&question.m, &question.n, &question.k, &question.batch})
    *size = reader.integer();
  for (std::string* word : {&question.layout, &question.dtype_b, &question.precision,
                            &question.accumulator, &question.out_dtype})
    *word = reader.string();
  question.a = read_strides("a", reader);
  question.b = read_strides("b", reader);
  question.out = read_strides("out", reader);
  for (std::uintptr_t* address : {&question.a_address, &question.b_address, &question.out_address})
    *address = std::uintptr_t(reader.integer());
  question.alpha = reader.real();
  for (std::string* word : {&question.scale_a, &question.scale_b, &question.epilogue})
    *word = reader.string();
  question.terms_b = int(reader.integer());
  question.sparse = reader.string();
  question.kernel = reader.string();
  return question;
}

DType parse_dtype(const std::string& text) {
  std::string names;
  for (int i = 0; i < kDTypes; ++i) {
    if (text == name(DType(i))) return DType(i);
    names += (names.empty() ? "" : ", ") + std::string(name(DType(i)));
  }
  fail("tcgemm: no dtype is called '", text, "'; expected one of ", names, ".");
}

Layout parse_layout(const std::string& text) {
  for (int i = 0; i < kLayouts; ++i)
    if (text == name(Layout(i))) return Layout(i);
  fail("tcgemm: no layout is called '", text, "'; expected TN, NN, TT or NT.");
}

// A matrix of rows x cols: contiguous along cols if `row_major`, else along rows, unless `strides`
// is set.
Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols, bool row_major,
              const std::optional<Strides>& strides, std::uintptr_t address) {
  if (strides) return {address, dtype, (*strides)[1], (*strides)[2], (*strides)[0]};
  if (is_subbyte(dtype)) {  // whole bytes along k
    const std::int64_t pitch = round_up(row_major ? cols : rows, 8);
    return {address, dtype, row_major ? pitch : 1, row_major ? 1 : pitch,
            (row_major ? rows : cols) * pitch};
  }
  return {address, dtype, row_major ? cols : 1, row_major ? 1 : rows, rows * cols};
}

// Sets the dtypes of the operands in memory, and the types that tensor cores multiply.
void set_types(Problem& problem, DType a, DType b, const std::string& precision) {
  const auto stored = [](DType type) { return type == DType::tf32 ? DType::f32 : type; };
  const auto input = [&](DType type) {
    if (type != DType::f32) return type;
    return precision == "high" ? DType::tf32 : precision == "medium" ? DType::bf16 : type;
  };
  problem[Slot::a].dtype = stored(a);
  problem[Slot::b].dtype = stored(b);
  problem.input_a = input(a);
  problem.input_b = input(b);
  problem.promote = is_fp8(a) && precision != "fast";
  problem.as_prepared = a == DType::f32 && precision == "prepared";
  problem.accumulator = default_accumulator(a);
  problem[Slot::out].dtype = default_result(stored(a));
}

// The scales of an operand from the name of their granularity. The operand is rows x k: m x k for
// a, n x k for b.
std::optional<Operand> parse_scale(const std::string& text, std::int64_t rows, std::int64_t k) {
  if (text.empty()) return std::nullopt;
  const std::int64_t blocks = ceil_div(k, kScaleBlock);
  const auto values = [&](std::int64_t row, std::int64_t col) {
    return Matrix{.dtype = DType::f32, .stride_row = row, .stride_col = col};
  };
  if (text == "tensor") return Operand{values(0, 0)};
  if (text == "row") return Operand{values(1, 0)};
  if (text == "1x128") return Operand{values(blocks, 1), 0, kScaleShift};
  if (text == "128x128") return Operand{values(blocks, 1), kScaleShift, kScaleShift};
  fail("tcgemm: no scales are called '", text, "'; expected tensor, row, 1x128 or 128x128 of ",
       rows, " rows.");
}

// A contiguous tensor of the epilogue. A bias has one row, and zero points are vectors. c, bias and
// residual have the dtype of the result, or f32 beside a result of 8 bits.
Matrix epilogue_matrix(const Problem& problem, Slot slot) {
  const OperandRow& row = operand_row(slot);
  if (row.dtypes == DTypeRule::zero_point)
    return {0, DType::s32, row.rows == Axis::m ? 1 : 0, row.cols == Axis::n ? 1 : 0, 0};
  if (row.dtypes != DTypeRule::addend) return {0, DType::f32, 0, 0, 0};
  const DType result = problem[Slot::out].dtype;
  const DType type = problem.accumulator == DType::f64 ? DType::f64
                     : bits(result) == 8               ? DType::f32
                                                       : result;
  if (slot == Slot::bias) return {0, type, 0, 1, 0};
  return {0, type, problem.n, 1, problem.m * problem.n};
}

// Adds one term of the epilogue by its name: a tensor or an activation.
void add_epilogue_term(Problem& problem, std::string_view term) {
  for (const Slot slot : kEpilogueTerms)
    if (term == name(slot)) return problem.set(slot, epilogue_matrix(problem, slot));
  for (int i = 0; i < kActivations; ++i) {
    problem.activation = Activation(i);
    if (term == name(problem.activation)) return;
  }
  fail("tcgemm: nothing in the epilogue is called '", term,
       "'; expected c, bias, residual, zero_a, zero_b, amax, scale_out or an activation.");
}

// Makes operand "a" or "b" 2:4 sparse. Its matrix is contiguous and has stored_k columns, unless
// its strides were passed (`has_strides`).
void set_sparse(Problem& problem, const std::string& operand, bool has_strides) {
  if (operand.empty()) return;
  const DType type = operand == "a" ? problem.input_a : problem.input_b;
  problem.sparse_k = value_columns(problem.k, pattern_of(type));
  if (operand == "a") {
    problem.set(Slot::sparse_a, Matrix{});
    Matrix& a = problem[Slot::a];
    if (!has_strides) a = {a.address, a.dtype, problem.sparse_k, 1, 0};
  } else if (operand == "b") {
    problem.set(Slot::sparse_b, Matrix{});
    Matrix& b = problem[Slot::b];
    if (!has_strides) b = {b.address, b.dtype, 1, problem.sparse_k, 0};
  } else {
    fail("tcgemm: sparse is '", operand, "'; expected a, b or nothing.");
  }
  problem.promote = false;
}

// Adds the terms of a list that commas separate.
void add_epilogue(Problem& problem, std::string_view terms) {
  while (!terms.empty()) {
    const std::size_t comma = terms.find(',');
    add_epilogue_term(problem, terms.substr(0, comma));
    terms = comma == std::string_view::npos ? "" : terms.substr(comma + 1);
  }
}

// Elements of a matrix and its strides are at most this, so that no byte count overflows.
constexpr std::int64_t kMostElements = std::int64_t(1) << 48;

void check_sizes(const Question& question) {
  const auto [m, n, k, batch] = std::array{question.m, question.n, question.k, question.batch};
  const auto too_large = [batch = batch](std::int64_t rows, std::int64_t cols) {
    return double(batch) * double(rows) * double(cols) > double(kMostElements);
  };
  bool wrong = too_large(m, n) || too_large(m, k) || too_large(n, k);
  for (const std::int64_t size : {m, n, k, batch}) wrong |= size < 0 || size > kLargestExtent;
  if (wrong)
    fail("tcgemm: m is ", m, ", n is ", n, ", k is ", k, " and batch is ", batch,
         "; expected sizes from 0 to 2**31 - 1024, and matrices of at most 2**48 elements.");
}

void check_strides(const char* name, const std::optional<Strides>& strides) {
  if (!strides) return;
  for (const std::int64_t stride : *strides)
    if (stride < 0 || stride > kMostElements)
      fail("tcgemm: a stride of ", name, " is ", stride, "; expected 0 to 2**48.");
}

Problem problem_of(const Question& question) {
  check_sizes(question);
  check_strides("a", question.a);
  check_strides("b", question.b);
  check_strides("out", question.out);
  const Layout layout = parse_layout(question.layout);
  const DType input = parse_dtype(question.dtype);
  if (is_subbyte(input) && layout != Layout::TN)
    fail("tcgemm: layout is ", name(layout), ", but ", name(input),
         " operands share bytes along k; expected TN.");
  const auto [m, n, k] = std::array{question.m, question.n, question.k};
  Problem problem;
  problem.batch = question.batch;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.set(Slot::a,
              matrix(input, m, k, major_a(layout) == Major::K, question.a, question.a_address));
  problem.set(Slot::b,
              matrix(input, k, n, major_b(layout) == Major::MN, question.b, question.b_address));
  problem.set(Slot::out, matrix(input, m, n, true, question.out, question.out_address));
  set_types(problem, input, question.dtype_b.empty() ? input : parse_dtype(question.dtype_b),
            question.precision);
  if (!question.accumulator.empty()) problem.accumulator = parse_dtype(question.accumulator);
  if (!question.out_dtype.empty()) problem[Slot::out].dtype = parse_dtype(question.out_dtype);
  problem.alpha = question.alpha;
  if (const auto scale = parse_scale(question.scale_a, m, k)) problem.set(Slot::scale_a, *scale);
  if (const auto scale = parse_scale(question.scale_b, n, k))
    problem.set(Slot::scale_b, transposed(*scale));
  add_epilogue(problem, question.epilogue);
  if (question.terms_b != 0) problem.set(Slot::terms_b, Matrix{});
  problem.prepared_terms = question.terms_b;
  problem.batch_invariant = is_batch_invariant();
  set_sparse(problem, question.sparse,
             (question.sparse == "a" ? question.a : question.b).has_value());
  return problem;
}

JsonObject describe(const RepackPass& pass) {
  return JsonObject()
      .add("rows", pass.rows)
      .add("k", pass.k)
      .add("batch", pass.batch)
      .add("pitch", pass.pitch)
      .add("offset", pass.offset)
      .add("to", name(pass.to));
}

JsonObject describe(const SumPass& pass) {
  return JsonObject()
      .add("rows", pass.rows)
      .add("k", pass.k)
      .add("batch", pass.batch)
      .add("offset", pass.offset);
}

JsonObject describe(const SplitFp32Pass& pass) {
  return JsonObject()
      .add("rows", pass.rows)
      .add("k", pass.k)
      .add("batch", pass.batch)
      .add("mn_major", pass.mn_major)
      .add("pitch", pass.pitch)
      .add("offset", pass.offset)
      .add("prepared_terms", pass.prepared.terms);
}

std::optional<JsonObject> describe(const LaunchConfig& launch) {
  if (launch.config_index < 0) return std::nullopt;
  return JsonObject()
      .add("kernel", std::string_view(name(kCatalog[launch.config_index])))
      .add("cluster", launch.cluster)
      .add("grid", launch.grid)
      .add("group", launch.raster_group)
      .add("tiles_m", launch.tiles_m)
      .add("tiles_n", launch.tiles_n);
}

JsonObject describe(const SplitFp32Plan& split) {
  return JsonObject()
      .add("a", describe(split.a))
      .add("b", describe(split.b))
      .add("bf16", split.bf16)
      .add("alternative", describe(split.alternative))
      .add("recompute", describe(split.recompute))
      .add("decision", split.decision)
      .add("recompute_mask", split.recompute_mask)
      .add("recompute_mask_bytes", split.recompute_mask_bytes);
}

template <class T>
std::optional<JsonObject> describe(const std::optional<T>& pass) {
  if (!pass) return std::nullopt;
  return describe(*pass);
}

std::string answer(const Problem& problem, const Plan& plan, const Device& device) {
  JsonObject object;
  add_facts(object, plan::facts(problem, plan, device));
  return object.add("group", plan.main.raster_group)
      .add("tiles_m", plan.main.tiles_m)
      .add("tiles_n", plan.main.tiles_n)
      .add("result_fits_l2", plan.main.result_fits_l2)
      .add("repack_a", describe(plan.passes.repack_a))
      .add("repack_b", describe(plan.passes.repack_b))
      .add("sums_a", describe(plan.passes.sums_a))
      .add("sums_b", describe(plan.passes.sums_b))
      .add("split", describe(plan.passes.split))
      .add("epilogue_path", name(plan.main.epilogue_path))
      .add("vector_a", plan.main.vector_a)
      .add("vector_b", plan.main.vector_b)
      .add("explain", plan::explain(problem, plan, device))
      .add("check_layout", plan::check_layout(problem, plan, device))
      .json();
}

}  // namespace

Results plan_of(const Call& call) {
  const Question question = read(call.stack);
  const Device* device = plan::find_device(question.device);
  if (!device)
    fail("tcgemm: no device is called '", question.device, "'; expected one of ",
         plan::device_names(), ".");
  const Problem problem = problem_of(question);
  const Plan plan = plan::make_plan(problem, *device, question.kernel);
  return text_result(answer(problem, plan, *device));
}

}  // namespace tcgemm::ops
