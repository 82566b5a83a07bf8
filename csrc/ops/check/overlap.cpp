// The byte offset of an element is a sum of stride * index. Both functions therefore search for a
// sum of bounded multiples in a range, as numpy.shares_memory does. Strides nest in all but
// contrived views, so the search tries at most two indices a dimension; a budget bounds the other
// cases.
#include "ops/check/overlap.h"

#include <algorithm>

namespace tcgemm::ops {
namespace {

constexpr int kBudget = 100'000;  // steps, about a millisecond

// stride * x for x in [0, last]
struct Term {
  std::int64_t stride, last;
};

// A bounded linear form over up to two views.
class Sum {
 public:
  void add(std::int64_t stride, std::int64_t last) {
    if (stride > 0 && last > 0) terms_[count_++] = {stride, last};
  }

  // True if a sum is in [low, high], or if the budget ends before the search does.
  bool reaches(std::int64_t low, std::int64_t high) {
    std::sort(terms_, terms_ + count_,
              [](const Term& x, const Term& y) { return x.stride > y.stride; });
    merge();
    for (int i = count_ - 1; i >= 0; --i)
      reach_[i] = terms_[i].stride * terms_[i].last + (i + 1 < count_ ? reach_[i + 1] : 0);
    int budget = kBudget;
    return search(0, low, high, budget);
  }

 private:
  // Two indices with the same stride are one index with a longer range.
  void merge() {
    int merged = 0;
    for (int i = 0; i < count_; ++i) {
      if (merged && terms_[merged - 1].stride == terms_[i].stride)
        terms_[merged - 1].last += terms_[i].last;
      else
        terms_[merged++] = terms_[i];
    }
    count_ = merged;
  }

  bool search(int i, std::int64_t low, std::int64_t high, int& budget) const {
    const std::int64_t reach = i < count_ ? reach_[i] : 0;
    if (high < 0 || low > reach) return false;
    if (low <= 0 || high >= reach) return true;  // every index is 0, or every index is at its last
    if (--budget < 0) return true;
    const auto [stride, last] = terms_[i];
    const std::int64_t rest = i + 1 < count_ ? reach_[i + 1] : 0;
    const std::int64_t first = low > rest ? (low - rest + stride - 1) / stride : 0;
    for (std::int64_t x = first; x <= std::min(last, high / stride); ++x)
      if (search(i + 1, low - x * stride, high - x * stride, budget)) return true;
    return false;
  }

  Term terms_[2 * kMaxDims];
  std::int64_t reach_[2 * kMaxDims];
  int count_ = 0;
};

bool empty(const View& view) {
  return std::any_of(view.sizes, view.sizes + view.dims, [](std::int64_t size) { return !size; });
}

// The bytes between the first and the last index of a dimension. Elements of a sub-byte type share
// bytes along the dimension of stride 1.
Term bytes_along(const View& view, std::int64_t d) {
  const std::int64_t stride = view.strides[d], size = view.sizes[d];
  if (is_subbyte(view.dtype) && stride == 1) return {1, bytes_of(size, view.dtype) - 1};
  return {bytes_of(stride, view.dtype), size - 1};
}

// Bytes from the start of the first element to the end of the last.
std::int64_t extent(const View& view) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < view.dims; ++d) {
    const Term term = bytes_along(view, d);
    last += term.stride * term.last;
  }
  return last + bytes_of(1, view.dtype);
}

}  // namespace

bool overlaps_itself(const View& view) {
  if (empty(view)) return false;
  // Two index tuples first differ in dimension d, by at least one step. They reach one element if
  // their later differences, each in [-(size - 1), size - 1], cancel this step.
  for (std::int64_t d = 0; d < view.dims; ++d) {
    if (view.sizes[d] == 1) continue;
    if (view.strides[d] == 0) return true;
    Sum sum;
    sum.add(view.strides[d], view.sizes[d] - 2);
    std::int64_t middle = 0;
    for (std::int64_t e = d + 1; e < view.dims; ++e) {
      sum.add(view.strides[e], 2 * (view.sizes[e] - 1));
      middle += view.strides[e] * (view.sizes[e] - 1);
    }
    const std::int64_t target = middle - view.strides[d];
    if (sum.reaches(target, target)) return true;
  }
  return false;
}

bool share_memory(const View& first, const View& second) {
  if (empty(first) || empty(second)) return false;
  const std::int64_t distance = static_cast<std::int64_t>(second.address - first.address);
  const std::int64_t end = extent(second);
  if (distance >= extent(first) || -distance >= end) return false;
  // Shared byte: offset in first + byte == distance + offset in second + byte. The indices of
  // `second` count down from their last, so that every term of the sum is positive.
  const std::int64_t size_first = bytes_of(1, first.dtype);
  const std::int64_t size_second = bytes_of(1, second.dtype);
  Sum sum;
  for (const View* view : {&first, &second}) {
    for (std::int64_t d = 0; d < view->dims; ++d) {
      const Term term = bytes_along(*view, d);
      sum.add(term.stride, term.last);
    }
  }
  const std::int64_t target = distance + end - size_second;
  return sum.reaches(target - (size_first - 1), target + (size_second - 1));
}

}  // namespace tcgemm::ops
