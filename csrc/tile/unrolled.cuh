// The epilogue of EpiloguePath::plain and EpiloguePath::fused: results whose rows are vectors, in
// units of 16 rows x 32 columns. docs/dev/kernels/epilogue.md says what was tried.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "tile/column_pairs.cuh"
#include "tile/epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/scale.cuh"
#include "tile/store.cuh"
#include "tile/store_columns.cuh"
#include "tile/store_z.cuh"
#include "tile/unit_addend.cuh"

namespace tcgemm::tile {

// The properties of a kernel for which its unrolled epilogue is compiled.
struct UnrolledTraits {
  int columns;  // of the fragment
  int unit;     // columns of a unit; the last one may be narrower
  RowOrder row_order;
  int staging_sets;  // see GemmConfig::staging_sets
  int staging_set_bytes;
  bool fused;              // EpiloguePath::fused, not EpiloguePath::plain
  int early_addends;       // units whose addends are loaded during the mainloop
  bool unrolled_terms;     // the variants of fused are unrolled
  bool activated_addends;  // there is a variant for each activation with an addend
  bool column_scales;      // the operands have 8 bits, so scales are common
  bool clips_rows;         // other rows follow the last one: store_box
};

// Warps that fetch instructions do not multiply, so the code that runs for one tile must be
// contiguous. Terms are compiled in, and a fragment runs one variant:
//
//   EpiloguePath::plain    scales of 8-bit operands, a bias and relu
//   EpiloguePath::fused    the same with gelu, gelu_tanh or silu; with an addend, which is c or the
//                          residual; with both, if the kernel has `activated_addends`; or the
//                          general variant, which has all of these, scales and f32 results
//
// The general variant is a loop over the units. The others are unrolled, the fused ones only if the
// kernel has `unrolled_terms`: a loop copies accumulators and computes addresses, which is a third
// of its instructions. In unrolled variants f16 or bf16 is a predicate of instructions: a branch in
// each unit takes longer to compile. The addends of the first units are loaded during the mainloop,
// the others one unit ahead of their use. All is inlined: a call would put the accumulators into
// memory.
template <UnrolledTraits kTraits, class Register>
class UnrolledEpilogue {
 public:
  // For the 16 rows of a warp from (row, col) of matrix `batch` on. map: of the result, or
  // nullptr if columns are stored from registers. smem_d: the warp's first staging buffer. vector:
  // Epilogue::shared_vector for the columns from `col` on, in f32.
  __device__ __forceinline__ UnrolledEpilogue(const Epilogue& epilogue, const Extent& extent,
                                              const TensorMap* map, char* smem_d,
                                              const float* vector, int row, int col, int batch)
      : epilogue_(epilogue),
        extent_(extent),
        map_(map),
        smem_d_(smem_d),
        vector_(vector),
        row_(row),
        col_(col),
        batch_(batch) {}

  // The addends of the first units of a fragment.
  static constexpr int kEarly = kTraits.early_addends;
  using Addends = UnitAddend<kTraits.unit>[kEarly > 0 ? kEarly : 1];

  // Loads these addends while the mainloop runs. Nothing waits for the loads before store(). The
  // loads of a lane differ in the offset of the unit alone, so two addresses serve all of them.
  __device__ __forceinline__ void load_addends(Addends& addends) const {
    static_assert(UnitAddend::kVectors == 2, "a lane loads one vector of each of its two rows");
    const TensorRef& source = epilogue_.sources[addend_index()];
    if (source.data == nullptr) return;
    const Window window = window_of(0);
    const int first = 8 * (threadIdx.x % 4), columns = min(window.cols, kTraits.columns) - first;
    const auto* matrix = static_cast<const std::uint16_t*>(source.data) +
                         window.batch * source.stride_batch + window.col + first;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* row = matrix + (window.row + window.lane_rows[half]) * source.stride_row;
      const int inside = window.holds(half) ? columns : 0;
#pragma unroll
      for (int unit = 0; unit < kEarly; ++unit)
        if (unit * kUnit < inside) addends[unit].load(half, row + unit * kUnit);
    }
  }

  __device__ __forceinline__ void store(const Register* fragment, const Addends& addends) {
    if (epilogue_.scaled) rows_ = load_row_scales(epilogue_, window_of(0));
    if constexpr (kTraits.fused) {
      if (!store_variant(fragment, addends)) store_in_loop<kGeneral>(fragment, addends);
    } else {
      with_out_dtype([&]<DType kOut>() { store_plain<kOut>(fragment); });
    }
  }

  // The same for EpiloguePath::plain and the last columns of a result that is stored by columns,
  // where a tile has more columns.
  __device__ __forceinline__ void store_last_columns(const Register* fragment,
                                                     const Addends& addends) {
    if (epilogue_.scaled) rows_ = load_row_scales(epilogue_, window_of(0));
    store_in_loop<kLastColumns>(fragment, addends);
  }

 private:
  // The terms of a variant of EpiloguePath::fused, beside a bias and the scales of 8-bit operands.
  struct Terms {
    Activation activation = Activation::none;
    bool addend = false;
    bool general = false;  // scales, and the activation of the call
    bool last_columns = false;
  };
  static constexpr Terms kGeneral = {.addend = true, .general = true};
  static constexpr Terms kLastColumns = {.last_columns = true};

  // The terms of a variant of EpiloguePath::plain: alpha and scales of rows; these and scales of
  // columns from shared memory; these from any memory, a bias and relu.
  enum class PlainTerms { row_scales, scales, all };

  using UnitAddend = tile::UnitAddend<kTraits.unit>;
  using ColumnPairs = tile::ColumnPairs<kTraits.unit>;
  static constexpr int kUnit = kTraits.unit;
  static constexpr int kLoops = kTraits.columns / kUnit;
  static constexpr int kTail = kTraits.columns % kUnit;  // columns of a narrower last unit
  static constexpr RowOrder kRowOrder = kTraits.row_order;
  static constexpr bool kIntegers = std::is_same_v<Register, std::int32_t>;
  using Accumulator = std::conditional_t<kIntegers, std::int32_t, float>;

  template <int kIndex>
  using Index = std::integral_constant<int, kIndex>;

  __device__ __forceinline__ Window window_of(int unit) const {
    return tile::window<kRowOrder>(extent_, row_, col_ + unit * kUnit, batch_);
  }

  // There is at most one of c and the residual.
  __device__ __forceinline__ int addend_index() const {
    return epilogue_.sources[kC].data != nullptr ? kC : kResidual;
  }
  __device__ __forceinline__ bool is_row_vector_bias() const {
    if constexpr (kRowOrder == RowOrder::native) return true;
    return epilogue_.sources[kBias].stride_col != 0;
  }

  // Calls use.operator()<kOut>() for the dtype of the result.
  template <class Use>
  __device__ __forceinline__ void with_out_dtype(const Use& use) const {
    if constexpr (kIntegers) {
      if (epilogue_.out_dtype == DType::s32) return use.template operator()<DType::s32>();
    }
    if (epilogue_.out_dtype == DType::bf16)
      use.template operator()<DType::bf16>();
    else if (epilogue_.out_dtype == DType::f16)
      use.template operator()<DType::f16>();
    else if constexpr (kRowOrder == RowOrder::native)
      use.template operator()<DType::f32>();
  }

  // Loads the addend of a unit. A piece of 8 columns that begins inside the matrix is read as a
  // whole: its rows are vectors of 16 bytes.
  __device__ __forceinline__ UnitAddend load_addend(int unit) const {
    UnitAddend addend = {};
    const TensorRef& source = epilogue_.sources[addend_index()];
    if (source.data == nullptr) return addend;
    const Window window = window_of(unit);
    const int columns = min(window.cols, kTraits.columns - unit * kUnit);
    const auto* matrix = static_cast<const std::uint16_t*>(source.data) +
                         window.batch * source.stride_batch + window.col;
#pragma unroll
    for (int i = 0; i < UnitAddend::kVectors; ++i) {
      const int piece = 4 * i + threadIdx.x % 4;
      const bool second_half = piece >= UnitAddend::kPieces;
      const int column = 8 * (piece % UnitAddend::kPieces);
      const int lane_row = second_half ? window.lane_rows[1] : window.lane_rows[0];
      if (!(second_half ? window.holds(1) : window.holds(0)) || column >= columns) continue;
      addend.load(i, matrix + (window.row + lane_row) * source.stride_row + column);
    }
    return addend;
  }

  template <DType kOut>
  __device__ __forceinline__ void store_plain(const Register* fragment) {
    constexpr Index<0> kFirst;
    constexpr int kCount = std::min(kUnit, kTraits.columns) / 2;
    if constexpr (kOut == DType::s32) {
      return store_unrolled<kOut, PlainTerms::row_scales>(kFirst, fragment);
    } else if constexpr (kTraits.column_scales) {
      if (!epilogue_.has_terms && !scales_columns(epilogue_))
        return store_unrolled<kOut, PlainTerms::row_scales>(kFirst, fragment);
      if constexpr (bits(kOut) == 16) {
        if (!epilogue_.has_terms && epilogue_.shares_scales)
          return store_unrolled<kOut, PlainTerms::scales>(kFirst, fragment,
                                                          shared_pairs<kCount>(kFirst));
      }
    }
    if constexpr (kOut != DType::s32) store_unrolled<kOut, PlainTerms::all>(kFirst, fragment);
  }

  // The scales or the bias of a unit's columns, from shared memory. kCount: the values of a lane.
  template <int kCount, class Unit>
  __device__ __forceinline__ ColumnPairs shared_pairs(Unit unit) const {
    ColumnPairs pairs = {};
    pairs.template load<kCount>(vector_ + unit * kUnit);
    return pairs;
  }

  // `scales`: see PlainTerms::scales. The next unit's are loaded before this one is written.
  template <DType kOut, PlainTerms kTerms, int kIndex>
  __device__ __forceinline__ void store_unrolled(Index<kIndex> unit, const Register* fragment,
                                                 const ColumnPairs& scales = {}) {
    constexpr int kFirst = kIndex * kUnit;
    constexpr int kWidth = std::min(kUnit, kTraits.columns - kFirst);
    constexpr bool kLast = kFirst + kWidth == kTraits.columns;
    constexpr bool kPacksRelu = bits(kOut) == 16 && kRowOrder == RowOrder::native;
    Accumulator accumulators[kWidth / 2];
    copy_columns<kFirst>(fragment, accumulators);
    Value<kOut> v[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) v[i] = accumulators[i];
    const bool relu = kTerms == PlainTerms::all && epilogue_.activation == Activation::relu;
    if constexpr (kOut != DType::s32) {
      if constexpr (kTerms == PlainTerms::all) {
        if constexpr (kTraits.column_scales)
          if (epilogue_.scaled) multiply_scales(unit, v);
        if (epilogue_.sources[kBias].data != nullptr) add_bias(unit, v);
        if (relu && !kPacksRelu) activate_each<Activation::relu, true>(v);
      } else if (epilogue_.scaled) {
        multiply_rows(epilogue_, rows_, v);
        if constexpr (kTerms == PlainTerms::scales) scales.multiply(v);
      }
    }
    ColumnPairs next = {};
    constexpr int kNext = std::min(kUnit, kTraits.columns - kFirst - kWidth) / 2;
    if constexpr (kTerms == PlainTerms::scales) next = shared_pairs<kNext>(Index<kIndex + 1>());
    write<kOut>(unit, v, relu && kPacksRelu);
    if constexpr (!kLast) store_unrolled<kOut, kTerms>(Index<kIndex + 1>(), fragment, next);
  }

  // Stores the fragment with the variant of the call's terms. Returns false if there is none.
  __device__ __forceinline__ bool store_variant(const Register* fragment, const Addends& addends) {
    const bool has_addend = epilogue_.sources[addend_index()].data != nullptr;
    if (addressable_bits(epilogue_.out_dtype) != 16 ||
        (epilogue_.scaled && !kTraits.column_scales) || (has_addend && epilogue_.z != nullptr))
      return false;
    if (!has_addend) return store_activated<false>(fragment, addends);
    if constexpr (kTraits.unrolled_terms) return store_activated<true>(fragment, addends);
    return false;
  }

  // The activations that have variants. The general variant has every one.
  template <bool kAddend>
  __device__ __forceinline__ bool store_activated(const Register* fragment,
                                                  const Addends& addends) {
    const auto store = [&]<Activation kActivation>() {
      constexpr Terms kTerms = {kActivation, kAddend};
      if constexpr (kAddend && kActivation != Activation::none && !kTraits.activated_addends)
        return false;
      else if constexpr (kTraits.unrolled_terms)
        store_units<kTerms>(Index<0>(), fragment, addends);
      else
        store_in_loop<kTerms>(fragment, addends);
      return true;
    };
    switch (epilogue_.activation) {
      case Activation::gelu: return store.template operator()<Activation::gelu>();
      case Activation::gelu_tanh: return store.template operator()<Activation::gelu_tanh>();
      case Activation::silu: return store.template operator()<Activation::silu>();
      case Activation::none:
        if constexpr (kAddend) return store.template operator()<Activation::none>();
      default: return false;
    }
  }

  // Stores the units from `unit` on. `late` is its addend, if that is not an early one.
  template <Terms kTerms, int kIndex>
  __device__ __forceinline__ void store_units(Index<kIndex> unit, const Register* fragment,
                                              const Addends& early, UnitAddend late = {}) {
    constexpr int kFirst = kIndex * kUnit;
    constexpr int kWidth = std::min(kUnit, kTraits.columns - kFirst);
    constexpr bool kLast = kFirst + kWidth == kTraits.columns;
    Accumulator accumulators[kWidth / 2];
    copy_columns<kFirst>(fragment, accumulators);
    if constexpr (kTerms.addend) {
      if constexpr (kIndex < kEarly)
        late = early[kIndex];
      else if constexpr (kIndex == 0)
        late = load_addend(0);
    }
    UnitAddend next = {};
    if constexpr (kTerms.addend && !kLast && kIndex + 1 >= kEarly) next = load_addend(kIndex + 1);
    finish<kTerms>(unit, late, accumulators);
    if constexpr (!kLast) store_units<kTerms>(Index<kIndex + 1>(), fragment, early, next);
  }

  // The same for all units, as a loop.
  template <Terms kTerms>
  __device__ __forceinline__ void store_in_loop(const Register* fragment, const Addends& early) {
    UnitAddend late = {};
    if constexpr (kTerms.addend && kEarly == 0) late = load_addend(0);
#pragma unroll 1
    for (int unit = 0; unit < kLoops; ++unit) {
      UnitAddend addend = late;
      Accumulator accumulators[kUnit / 2];
      copy_unit<kTerms.addend>(fragment, early, unit, accumulators, addend);
      if (kTerms.addend && unit + 1 >= kEarly) late = load_addend(unit + 1);
      finish<kTerms>(unit, addend, accumulators);
    }
    if constexpr (kTail > 0) {
      Accumulator accumulators[kTail / 2];
      copy_columns<kLoops * kUnit>(fragment, accumulators);
      finish<kTerms>(Index<kLoops>(), late, accumulators);
    }
  }

  // The accumulators of a unit, and its addend if that is an early one. Registers have no dynamic
  // index.
  template <bool kAddend, int kIndex = 0>
  __device__ __forceinline__ static void copy_unit(const Register* fragment, const Addends& early,
                                                   int unit, Accumulator (&v)[kUnit / 2],
                                                   UnitAddend& addend) {
    if constexpr (kIndex + 1 < kLoops)
      if (unit != kIndex) return copy_unit<kAddend, kIndex + 1>(fragment, early, unit, v, addend);
    copy_columns<kIndex * kUnit>(fragment, v);
    if constexpr (kAddend && kIndex < kEarly) addend = early[kIndex];
  }

  // Everything between the accumulators and the result, in the order of Epilogue.
  template <Terms kTerms, class Unit, int kCount>
  __device__ __forceinline__ void finish(Unit unit, UnitAddend& addend,
                                         const Accumulator (&accumulators)[kCount]) {
    float v[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = accumulators[i];
    if constexpr (kTerms.addend) addend.exchange();
    if (kTerms.general || kTraits.column_scales)
      if (epilogue_.scaled) multiply_scales(unit, v);
    constexpr bool kInLoop = kTerms.general || kTerms.last_columns || !kTraits.unrolled_terms;
    const bool has_c = addend_index() == kC;
    if (kTerms.addend && has_c)
      addend.template add_to<kInLoop>(v, epilogue_.beta, epilogue_.sources[kC].dtype);
    if (epilogue_.sources[kBias].data != nullptr) add_bias(unit, v);
    if constexpr ((kTerms.general || !kTerms.addend) && kRowOrder == RowOrder::native &&
                  !kTraits.column_scales)
      if (epilogue_.z != nullptr) store_z(epilogue_, window_of(unit), v);
    if constexpr (kTerms.general)
      activate_as(epilogue_.activation, v);
    else if constexpr (kTerms.activation != Activation::none)
      activate_each<kTerms.activation, true>(v);
    else if (kTerms.last_columns && epilogue_.activation == Activation::relu)
      activate_each<Activation::relu, true>(v);
    const TensorRef& residual = epilogue_.sources[kResidual];
    if (kTerms.addend && !has_c && residual.data != nullptr)
      addend.template add_to<kInLoop>(v, 1.0f, residual.dtype);
    if constexpr (!kInLoop)
      write_16bit<kCount>(unit, [&](char* smem_d, int chunk) {
        pack_16bit<true, kRowOrder>(epilogue_.out_dtype == DType::f16, smem_d, chunk, v);
      });
    else
      with_out_dtype([&]<DType kOut>() {
        if constexpr (kTerms.last_columns && bits(kOut) == 16)
          store_columns_as<kOut>(epilogue_, window_of(unit), v);
        else if constexpr (kOut != DType::s32 && (kTerms.general || bits(kOut) == 16))
          write<kOut>(unit, v);
      });
  }

  // gelu has results of 16 bits alone: vector_path in plan/store_path.cpp.
  template <int kIndex = 1, int kCount>
  __device__ __forceinline__ void activate_as(Activation activation, float (&v)[kCount]) const {
    if constexpr (kIndex < kActivations) {
      constexpr Activation kActivation{kIndex};
      constexpr bool kHasWide = is_transcendental(kActivation) && kActivation != Activation::gelu;
      if (activation != kActivation)
        activate_as<kIndex + 1>(activation, v);
      else if (!kHasWide || addressable_bits(epilogue_.out_dtype) == 16)
        activate_each<kActivation, true>(v);
      else
        activate_each<kActivation, false>(v);
    }
  }

  template <class Unit, int kCount>
  __device__ __forceinline__ void multiply_scales(Unit unit, float (&v)[kCount]) const {
    tile::multiply_scales<kUnit>(epilogue_, rows_, window_of(unit), vector_ + unit * kUnit, v);
  }

  template <class Unit, int kCount>
  __device__ __forceinline__ void add_bias(Unit unit, float (&v)[kCount]) const {
    if (is_row_vector_bias()) return shared_pairs<kCount>(unit).add_to(v);
    const TensorRef& bias = epilogue_.sources[kBias];
    const Window window = window_of(unit);
    const std::int64_t offset = window.batch * bias.stride_batch + window.row * bias.stride_row;
    add_column_vector(bias, 1.0f, offset, window, v);
  }

  // Writes a unit to the result, or to a staging buffer that TMA stores when it is full. `relu`
  // belongs to the rounding to 16 bits, where it costs no instruction.
  template <DType kOut, class Unit, class T, int kCount>
  __device__ __forceinline__ void write(Unit unit, const T (&v)[kCount], bool relu = false) const {
    if constexpr (kRowOrder == RowOrder::interleaved) {
      if (map_ == nullptr) {
        if constexpr (bits(kOut) == 16) store_columns_as<kOut, true>(epilogue_, window_of(unit), v);
        return;
      }
    }
    if constexpr (bits(kOut) == 16)
      write_16bit<kCount>(unit, [&](char* smem_d, int chunk) {
        pack_16bit<kOut, true, kRowOrder>(smem_d, chunk, v, relu);
      });
    else
      write_32bit(unit, v);
  }

  // pack(smem_d, chunk) writes the kCount values of a lane to a staging buffer.
  template <int kCount, class Unit, class Pack>
  __device__ __forceinline__ void write_16bit(Unit unit, const Pack& pack) const {
    constexpr int kBox = 64, kNarrow = kTraits.columns % kBox;
    const int column = unit * kUnit % kBox, box = unit * kUnit / kBox;
    if (column == 0) wait_for_buffer<kBox>(box);
    char* smem_d = buffer(box);
    pack(smem_d, column / 8);
    if (column + 2 * kCount == kBox) {
      store_box(smem_d, col_ + box * kBox);
    } else if (kNarrow > 0 && unit * kUnit + 2 * kCount == kTraits.columns) {
      // TMA does not store a box that is narrower than the boxes of its map.
      __syncwarp();
      store_staged<kNarrow == 0 ? kBox : kNarrow, std::uint16_t>(
          epilogue_, move_left(window_of(unit), column), smem_d);
    }
  }

  template <class Unit, class T, int kCount>
  __device__ __forceinline__ void write_32bit(Unit unit, const T (&v)[kCount]) const {
    constexpr int kBox = 32;
    const int column = unit * kUnit % kBox, box = unit * kUnit / kBox;
    // The columns beyond the last whole box.
    if ((box + 1) * kBox > kTraits.columns) return store_direct(epilogue_, window_of(unit), v);
    if (column == 0) wait_for_buffer<kBox>(box);
    char* smem_d = buffer(box);
    pack_32bit<kRowOrder, kCount>(smem_d, column / 4, v);
    if (column + 2 * kCount == kBox) store_box(smem_d, col_ + box * kBox);
  }

  // Stores a box of 16 rows. In a grouped product the next group follows its last row, and TMA must
  // store no more: the map (launch/gemm.cpp) has a dimension of 16 rows in which the box begins so
  // late that the others are outside.
  __device__ __forceinline__ void store_box(const char* smem_d, int col) const {
    if constexpr (kTraits.clips_rows) {
      const int rows = min(kBoxRows, extent_.m - row_);
      tma_store_box(map_, smem_d, kBoxRows - rows, col, row_ + rows, epilogue_.store_policy);
    } else {
      tma_store_box(map_, smem_d, row_, col, batch_, epilogue_.store_policy);
    }
  }

  __device__ __forceinline__ char* buffer(int box) const {
    return smem_d_ + (kTraits.staging_sets == 2 ? box % 2 * kTraits.staging_set_bytes : 0);
  }

  // With two buffers the last box may still be read. The first box of a tile follows the last one
  // of the tile before, which has the other buffer if the number of boxes is even.
  template <int kBox>
  __device__ __forceinline__ static void wait_for_buffer(int box) {
    constexpr bool kEven = kTraits.columns % (2 * kBox) == 0;
    if (kTraits.staging_sets == 2 && (kEven || box > 0))
      wait_box_read<1>();
    else
      wait_box_read<0>();
  }

  const Epilogue& epilogue_;
  const Extent& extent_;
  const TensorMap* map_;
  char* smem_d_;
  const float* vector_;
  int row_, col_, batch_;
  RowScales rows_;
};

}  // namespace tcgemm::tile
