// The checks of a grouped product: its dtypes and shapes, the ends of its groups, and accumulate.
#include <cstdlib>
#include <string_view>

#include "core/params.h"
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

// The shapes that are allowed. T is the dimension that the groups divide:
//
//   groups of          a            b            result       bias      residual
//   rows of a (m)      (T, K)       (G, K, N)    (T, N)       (G, N)    (T, N)
//   columns of b (n)   (G, M, K)    (K, T)       (M, T)       (T,)      (M, T)
//   k                  (M, T)       (T, N)       (G, M, N)    (G, N)    (G, M, N)
//   nothing, no offs   (G, M, K)    (G, K, N)    (G, M, N)    (G, N)    (G, M, N)

const char* extent_name(Axis grouped) {
  switch (grouped) {
    case Axis::m: return "rows of a";
    case Axis::n: return "columns of b";
    default: return "columns of a";
  }
}

std::int64_t grouped_extent(const CheckedGemm& checked) {
  switch (checked.grouped) {
    case Axis::m: return checked.m;
    case Axis::n: return checked.n;
    default: return checked.k;
  }
}

bool checks_gpus() {
  const char* const value = std::getenv("TCGEMM_CHECK");
  return value && std::string_view(value) == "1";
}

// Checks the ends of the groups, which lie on the CPU.
template <class Integer>
void check_values(const Operator& op, const CheckedGemm& checked, const Integer* ends,
                  std::int64_t stride) {
  const std::int64_t groups = checked.batch[0], extent = grouped_extent(checked);
  constexpr const char* kMend =
      "; offs has the end of each group, which is the cumulative sum of their lengths.";
  std::int64_t before = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t end = ends[g * stride];
    if (end < 0)
      fail(name(op), ": offs[", g, "] is ", end, ", but no group ends before index 0", kMend);
    if (end < before)
      fail(name(op), ": offs[", g, "] is ", end, ", but offs[", g - 1, "] is ", before,
           ", and a group cannot end before the one in front of it", kMend);
    if (end > extent)
      fail(name(op), ": offs[", g, "] is ", end, ", but there are ", extent, " ",
           extent_name(checked.grouped), kMend);
    before = end;
  }
}

void check_values(const Operator& op, const CheckedGemm& checked, std::uintptr_t address,
                  std::int64_t stride, bool wide) {
  if (wide)
    check_values(op, checked, reinterpret_cast<const std::int64_t*>(address), stride);
  else
    check_values(op, checked, reinterpret_cast<const std::int32_t*>(address), stride);
}

void check_bias(const Operator& op, const CheckedGemm& checked) {
  const View& bias = checked[Slot::bias].view;
  if (checked.grouped == Axis::n) {
    if (bias.dims == 1 && bias.sizes[0] == checked.n) return;
    fail(name(op), ": bias must have shape (", checked.n,
         ",), one number for each column of b, but has ", bias.shape(),
         "; pass anything that varies along the rows as residual.");
  }
  const std::int64_t groups = checked.batch[0];
  if (bias.dims == 2 && bias.sizes[0] == groups && bias.sizes[1] == checked.n) return;
  fail(name(op), ": bias must have shape (", groups, ", ", checked.n,
       "), a row for each group, but has ", bias.shape(),
       "; pass one row for all groups as bias.expand(", groups, ", ", checked.n, ").");
}

}  // namespace

void check_accumulate(const Operator& op, const Arguments& arguments, const CheckedGemm& checked) {
  if (shapes_of(op, checked) != Shapes::grouped)
    fail(name(op),
         ": accumulate=True is given without offs, but tcgemm.grouped_mm alone adds to out; pass "
         "offs, or c=out for a product of tcgemm.addmm.");
  if (!checked[Slot::out].view)
    fail(name(op),
         ": accumulate=True adds the product to out, but there is no out; pass out=, or "
         "leave accumulate out.");
  const char* given = nullptr;
  if (arguments.activation) given = "activation";
  for (const Slot slot : {Slot::residual, Slot::bias})
    if (checked[slot].view) given = name(slot);
  if (given)
    fail(name(op), ": ", given, " is given, but with accumulate=True out + alpha * (a @ b) is ",
         "computed and nothing else; leave ", given, " out, or accumulate.");
}

void check_description(const Operator& op, const Arguments& arguments, const CheckedGemm& checked) {
  const char* given = nullptr;
  if (arguments.acc_dtype) given = "acc_dtype";
  if (arguments.amax) given = "amax";
  if (arguments.types) given = "types";
  for (const Slot slot : kAllSlots) {
    const bool is_known = slot == Slot::a || slot == Slot::b || slot == Slot::offs ||
                          slot == Slot::bias || slot == Slot::residual || slot == Slot::out;
    if (checked[slot].view && !is_known) given = name(slot);
  }
  if (given)
    fail(name(op), ": ", given, " is given beside offs, but tcgemm.grouped_mm has no ", given,
         "; leave one of them out.");
}

void check_grouped_types(const Operator& op, const CheckedGemm& checked) {
  for (const Slot slot : {Slot::a, Slot::b}) {
    const View& view = checked[slot].view;
    const DType type = view.dtype;
    if (view.has_dtype &&
        (type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64))
      continue;
    fail(name(op), ": ", view.name, " is ", type_name(view),
         ", but a grouped product takes torch.float16, torch.bfloat16, torch.float32 and "
         "torch.float64; convert both operands with .to(...).");
  }
  const View& offs = checked[Slot::offs].view;
  if (!offs || is_int64(offs) || (offs.has_dtype && offs.dtype == DType::s32)) return;
  fail(name(op), ": offs is ", type_name(offs),
       ", but the ends of groups are torch.int32 or torch.int64; convert it with "
       ".to(torch.int32).");
}

void bind_groups(const Operator& op, CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  const View& b = checked[Slot::b].view;
  const View& offs = checked[Slot::offs].view;
  if (a.dims == 3 && b.dims == 3) {
    if (!offs) return;
    fail(name(op), ": offs is given, but a of shape ", a.shape(), " and b of shape ", b.shape(),
         " have a matrix for each group, so that no dimension is divided; leave offs out.");
  }
  checked.grouped = a.dims == 3 ? Axis::n : b.dims == 3 ? Axis::m : Axis::k;
  const char* const extent = extent_name(checked.grouped);
  if (!offs)
    fail(name(op), ": offs is not given, but with a of shape ", a.shape(), " and b of shape ",
         b.shape(), " the groups divide the ", extent,
         "; pass the end of each group as a tensor of torch.int32.");
  if (offs.dims != 1)
    fail(name(op), ": offs must be a vector (G,), but has shape ", offs.shape(),
         "; pass the end of each group.");
  if (checked.grouped == Axis::k) {
    checked.batch_dims = 1;
    checked.batch[0] = offs.sizes[0];
  }
  if (offs.sizes[0] != checked.batch[0]) {
    const View& batch = a.dims == 3 ? a : b;
    fail(name(op), ": offs has ", offs.sizes[0], " ends of groups, but ", batch.name, " of shape ",
         batch.shape(), " has ", checked.batch[0],
         " matrices; pass the end of each group, without a 0 in front.");
  }
  if (grouped_extent(checked) > kLargestExtent)
    fail(name(op), ": there are ", grouped_extent(checked), " ", extent,
         ", but the ends of groups are read as 32 bits, so there can be at most 2**31 - 1024; "
         "split the groups over two calls.");
}

void check_offs(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  CheckedOperand& operand = checked[Slot::offs];
  View& view = operand.view;
  const bool wide = is_int64(view);
  if (wide) bind_int64(name(op), view, arguments[Slot::offs]);
  if (is_cpu(view)) {
    check_values(op, checked, view.address, view.strides[0], wide);
  } else if (is_cuda(view) && checks_gpus()) {
    const TensorHandle copy = host_copy("the ends of groups", arguments[Slot::offs], view);
    check_values(op, checked, reinterpret_cast<std::uintptr_t>(data(copy)), 1, wide);
  }
  // The lower halves of 64-bit integers hold every end.
  checked.offs_stride = (wide ? 2 : 1) * view.strides[0];
  view.strides = &checked.offs_stride;
  view.dtype = DType::s32;
  view.has_dtype = true;
  operand.rows = view.sizes[0];
  operand.stride_row = checked.offs_stride;
}

void bind_grouped_addends(const Operator& op, CheckedGemm& checked) {
  CheckedOperand& bias = checked[Slot::bias];
  if (bias.view) {
    check_bias(op, checked);
    bind_matrix_dims(bias, false, true);  // (G, N) is a batch of rows
  }
  CheckedOperand& residual = checked[Slot::residual];
  if (!residual.view) return;
  if (!checked.fits(residual.view))
    fail(name(op), ": residual has shape ", residual.view.shape(), ", but the result has shape ",
         checked.shape(), "; pass a residual of that shape, for example with expand.");
  bind_matrix_dims(residual, true, true);
}

}  // namespace tcgemm::ops
