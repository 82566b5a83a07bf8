// Packs a weight group by group.
#include "cpu/pack_weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/orient.h"

namespace tcgemm::cpu {
namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 14;  // that are worth a thread

class GroupPacker {
 public:
  explicit GroupPacker(const Packing& packing)
      : task_(packing),
        load_(kernel_set(active_cpu_features()).f32.load),
        packer_(packing.rules, CodeBook(packing.book),
                packing.global_scale == nullptr ? 1.0f : *packing.global_scale),
        lanes_(pack_lanes(packing.group)),
        elements_(packing.group) {}

  void pack(std::int64_t first, std::int64_t last) {
    for_codes(task_.rules, [&]<WeightFormat kFormat, bool kPoints>() {
      for (std::int64_t index = first; index < last; ++index) pack<kFormat, kPoints>(index);
    });
  }

 private:
  template <WeightFormat kFormat, bool kPoints>
  void pack(std::int64_t index) {
    const std::int64_t row = index / task_.groups_in_row();
    const std::int64_t column = index % task_.groups_in_row() * task_.group;
    load_(task_.w.dtype, element(task_.w, 0, row, column), task_.w.stride_col, task_.group,
          elements_.data());
    GroupRange range;
    for (const float x : elements_) range.add<kPoints>(x);
    const GroupScale scale = best_scale(
        packer_, range, [&](const GroupScale& tried) { return error<kFormat, kPoints>(tried); });
    const int size = scale_bytes(task_.rules.scale_type);
    // The bytes of a scale are the low ones of its bits.
    std::memcpy(static_cast<char*>(task_.scales) + index * size, &scale.bits, size);
    if (task_.zero_points != nullptr) task_.zero_points[index] = std::uint8_t(scale.zero);
    store<kFormat, kPoints>(row, column, scale);
  }

  // The sum of the lanes' sums, which are added in pairs.
  template <WeightFormat kFormat, bool kPoints>
  double error(const GroupScale& scale) const {
    double sums[kMostPackLanes] = {};
    for (std::int64_t i = 0; i < task_.group; ++i)
      sums[i / kPackElements % lanes_] +=
          packer_.error<kFormat, kPoints>(elements_[i], elements_[i] / scale.divisor, scale);
    for (int step = 1; step < lanes_; step *= 2)
      for (int lane = 0; lane < lanes_; lane += 2 * step) sums[lane] += sums[lane + step];
    return sums[0];
  }

  template <WeightFormat kFormat, bool kPoints>
  void store(std::int64_t row, std::int64_t column, const GroupScale& scale) const {
    const auto code = [&](std::int64_t i) {
      return std::uint8_t(packer_.code<kFormat, kPoints>(elements_[i] / scale.divisor, scale).code);
    };
    std::uint8_t* const codes = task_.codes + row * task_.row_bytes();
    if (bits(task_.rules.format) == 8) {
      for (std::int64_t i = 0; i < task_.group; ++i) codes[column + i] = code(i);
      return;
    }
    for (std::int64_t i = 0; i < task_.group; i += 2) {
      const int high = i + 1 < task_.group ? code(i + 1) & 15 : 0;
      codes[(column + i) / 2] = std::uint8_t((code(i) & 15) | high << 4);
    }
  }

  const Packing& task_;
  Load<float> load_;
  Packer packer_;
  int lanes_;
  std::vector<float> elements_;
};

}  // namespace

void pack_weight(const Packing& packing, const Parallel& parallel) {
  const std::int64_t groups = packing.n * packing.groups_in_row();
  const auto body = [](std::int64_t first, std::int64_t last, void* context) {
    GroupPacker packer(*static_cast<const Packing*>(context));
    packer.pack(first, last);
  };
  Packing task = packing;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementsAtOnce / std::max<std::int64_t>(1, packing.group));
  if (parallel.threads == 1 || groups <= grain) return body(0, groups, &task);
  parallel.run(0, groups, grain, body, &task);
}

}  // namespace tcgemm::cpu
