// Split -> SplitParams, and the chain of kernels.
#include "launch/split_fp32.h"

#include <algorithm>
#include <cstdint>

#include "catalog.h"
#include "core/split_fp32.h"
#include "kernels/kernels.h"
#include "launch/params.h"
#include "launch/launch_kernel.h"

namespace tcgemm::launch {
namespace {

template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// Where the pieces of an operand's blob lie: in the workspace, or partly in one made before.
struct Pieces {
  std::uint32_t* notes;
  Range* ranges;
  std::uintptr_t parts[2];  // of f16 and of bf16

  Pieces(const SplitPass& pass, std::uintptr_t workspace) {
    const std::uintptr_t own = workspace + pass.offset;
    const std::uintptr_t blob = pass.made.parts ? pass.made.address : own;
    const BlobLayout layout = blob_layout(pass, kBf16Parts);
    notes = at<std::uint32_t>(blob + layout.notes);
    ranges = at<Range>(blob + layout.ranges);
    parts[0] = (pass.made.parts == kF16Parts ? blob : own) + layout.parts;
    parts[1] = (pass.made.parts == kBf16Parts ? blob : own) + layout.parts;
  }
};

SplitOperand operand(const SplitPass& pass, const Pieces& pieces, int parts) {
  SplitOperand result{};
  result.source = source(pass.source, pass.rows, pass.k, pass.batch);
  result.mn_major = pass.mn_major;
  result.ranges = pieces.ranges;
  result.notes = pieces.notes;
  result.parts = at<void>(pieces.parts[parts == kBf16Parts]);
  result.rows = pass.rows;
  result.k = pass.k;
  result.batch = pass.batch;
  result.pitch = pass.pitch;
  result.distance = pass.distance();
  return result;
}

// Both passes over up to two operands, for parts of up to this many; those with parts that were
// made before are left out where they can be.
void split(SplitParams params, const SplitPass* const (&passes)[2],
           const Pieces* const (&pieces)[2], int most_parts, int device, void* stream) {
  // Leaves in `params` the operands that a pass has to read.
  const auto choose = [&](int parts) {
    params.count = 0;
    for (int i = 0; i < 2; ++i)
      if (passes[i] != nullptr && passes[i]->made.parts < parts && parts <= most_parts)
        params.operands[params.count++] = operand(*passes[i], *pieces[i], parts);
    kernels::split_cut(params);
  };
  for (int i = 0; i < 2; ++i) {
    params.notes[i] = pieces[i] ? pieces[i]->notes : nullptr;
    params.note_counts[i] =
        pieces[i] ? kernels::split_notes(operand(*passes[i], *pieces[i], kF16Parts)) : 0;
  }
  choose(kF16Parts);
  submit(kernels::split_first(), &params,
         {kernels::split_first_blocks(params), kernels::kSplitThreads, 0, params.cluster,
          overlaps(device)},
         stream, {-1, "the first split pass"});
  choose(kBf16Parts);
  submit(kernels::split_second(), &params,
         {kernels::split_second_blocks(params), kernels::kSplitThreads, 0, 1, overlaps(device)},
         stream, {-1, "the second split pass"});
}

}  // namespace

void product_of_parts(const Call& call) {
  const Split& passes = *call.plan.split;
  const Problem& problem = call.problem;
  const std::uintptr_t workspace = reinterpret_cast<std::uintptr_t>(call.workspace);
  const Pieces a(passes.a, workspace), b(passes.b, workspace);

  SplitParams params{};
  params.bf16 = passes.bf16;
  params.top = split_top(kBf16Parts, problem.k);
  params.verdict = at<std::uint32_t>(workspace + passes.verdict);
  params.flags = at<std::uint8_t>(workspace + passes.flags);
  params.flag_bytes = passes.flag_bytes;
  const int own = kCatalog[call.plan.kernel].parts;
  const int others = passes.other.kernel < 0 ? 1 : kCatalog[passes.other.kernel].parts;
  split(params, {&passes.a, &passes.b}, {&a, &b}, std::max(own, others), call.device, call.stream);

  for (const Run& run : {static_cast<const Run&>(call.plan), passes.other}) {
    if (run.kernel < 0) continue;
    const int parts = kCatalog[run.kernel].parts;
    if (parts == 1) {
      Call whole = call;
      whole.run = run;
      whole.repair = {params.verdict, nullptr};
      product(whole);
      continue;
    }
    const Matrix part_a = first_part(passes.a, parts, a.parts[parts == kBf16Parts]);
    const Matrix part_b = first_part(passes.b, parts, b.parts[parts == kBf16Parts]);
    const Problem multiplied = in_parts(problem, part_a, part_b, parts);
    PartsParams of{};
    of.verdict = params.verdict;
    of.ranges_a = a.ranges;
    of.ranges_b = b.ranges;
    of.flags = params.flags;
    of.flags_m = std::int32_t(passes.repair.tiles_m);
    of.flags_n = std::int32_t(passes.repair.tiles_n);
    of.copies_a = std::int32_t(passes.a.batch);
    of.copies_b = std::int32_t(passes.b.batch);
    of.top = split_top(parts, problem.k);
    of.widest_spread = widest_spread(parts, problem.k);
    of.doubt = doubt(parts, problem.k);
    product({multiplied,
             call.plan,
             run,
             part_a,
             part_b,
             of,
             {},
             call.workspace,
             call.device,
             call.stream});
  }
  Call again = call;
  again.run = passes.repair;
  again.repair = {params.verdict, params.flags};
  product(again);
}

void make_blob(const SplitPass& pass, void* blob, int device, void* stream) {
  check(cudaSetDevice(device), "choosing the device for", {-1, "prepare"});
  const Pieces pieces(pass, reinterpret_cast<std::uintptr_t>(blob));
  SplitParams params{};
  params.top = split_top(kBf16Parts, pass.k);
  params.verdict = static_cast<std::uint32_t*>(blob);
  split(params, {&pass, nullptr}, {&pieces, nullptr}, kBf16Parts, device, stream);
}

}  // namespace tcgemm::launch
