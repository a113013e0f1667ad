// The block-reflector update on Hopper: block_reflector_kernel.cuh says what it does.
//
// Tiles of V and C come through stages of shared memory by tensor copies, which one thread of a warp of its own starts.
// Where quads of C are not aligned, for which there are no tensor copies, two warps copy C's elements one by one. The
// other warps multiply, a warpgroup 32 rows of a tile, and both products are those of warpgroups, which run on the
// tensor cores' own time and read V from shared memory by themselves:
//
//   Wᵀ = Cᵀ·V         C's columns, scaled and split in registers, are the rows of the first factor. Each 16 rows of V
//                     leave the accumulators, which truncate; W is the sum of the two warpgroups' parts.
//   Cᵀ -= (TᵀW)ᵀ·Vᵀ   Tᵀ·W or T·W stays in registers. Products with a low part come first, while sums are small.
//
// So a thread has the same two columns of C all the time, and no warp waits for another but by the stages: they are
// published and retired by mbarriers. A stage is retired when what was loaded from it has been used, as a copy could
// overtake loads that are still on their way. What is updated goes to global memory from registers: a copy from shared
// memory would have to wait for a fence, which took longer than the product.
//
// In the first pass there is one more stage in the place of W, unless sums of many tiles are added up in W on the way;
// in the second one in the place of the weights, which are in registers then.
//
// Waits end whatever the data are, and no loop's count depends on them. Resources: 288 or 320 threads of at most 96
// registers, 110 KB of shared memory: two CTAs on an SM.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_BULK_KERNEL_CUH_
#define JAXQR_FFI_BLOCK_REFLECTOR_BULK_KERNEL_CUH_

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "block_reflector_parts.cuh"
#include "bulk_ptx.cuh"
#include "coupling.cuh"
#include "wgmma_ptx.cuh"

namespace jaxqr::update {

inline constexpr int kPad = 4;  // halves added to a column of the weights, so that they fall into different banks
// Threads that start copies, and all with those of their warps.
template <bool kAligned>
inline constexpr int kCopyThreads = kAligned ? 1 : 64;
template <bool kAligned>
inline constexpr int kBulkThreads = kThreads + (kAligned ? 32 : 64);

// A tile of V and C. They are swizzled: a row is 128 bytes (or 64, of V at width 32), in which 16-byte word i of row r
// is at i ^ r % 8 (or i ^ r / 2 % 4), so that no 8 words that are loaded together meet in a bank.
template <int kWidth>
struct Stage {
  __half v[2][kTileRows][kWidth];     // high and low parts
  float c[2][kTileRows][kStrip / 2];  // left and right half
};

template <int kWidth>
struct BulkShared {
  static constexpr int kStages = kWidth == 64 ? 2 : 3;
  union __align__(1024) {
    Stage<kWidth> stages[kStages + 1];  // one more where W is not yet there
    struct {
      Stage<kWidth> kept[kStages];
      union {
        Sums<kWidth> w;
        __half weights[2][kStrip][kWidth + kPad];  // Tᵀ·W or T·W, transposed: high and low parts
      };
    };
  };
  Blocks<kWidth> t;
  float scale[kStrip];           // of C's columns: exact powers of two
  float group_scale[2][kStrip];  // those in whose units a warpgroup sums
  float unit[kStrip];            // what one of the last product counts in a scaled column
  // Largest magnitudes of W's columns, and of C's after the update, as bits, which order like the values.
  unsigned magnitude[2][kStrip];
  uint64_t full[kStages + 1], left[kStages + 1];  // a stage has come, and may go
  uint64_t vacated;                               // the weights may go
};

// Of V's [matrix][row][part][column], and, where it is aligned, of C's [matrix][row][column] from `known` on. Copies
// bring zeros from outside the matrices.
struct BulkMaps {
  CUtensorMap v, c;
};

// The stages in turn, and the parities of the phases that their mbarriers are in.
struct Ring {
  int stage;
  unsigned phases = 0;

  __device__ __forceinline__ unsigned parity() const { return phases >> stage & 1; }
  __device__ __forceinline__ void leave() { phases ^= 1u << stage; }
  // Upwards, or with one stage more downwards.
  __device__ __forceinline__ void next(int stages) { stage = stage + 1 == stages ? 0 : stage + 1; }
  __device__ __forceinline__ void back(int last) { stage = stage == 0 ? last : stage - 1; }
};

// A tile of C that is not aligned, by kCopyThreads threads: `source` is where it begins. Zeros come instead of the
// first `above` rows and the first `left` columns, and from outside of `rows` and `columns`.
__device__ __forceinline__ void copy_elements(float (&c)[2][kTileRows][kStrip / 2], const float* source, int row_stride,
                                              int above, int rows, int left, int columns) {
  constexpr int kRows = kTileRows / (kCopyThreads<false> / 32);  // of a warp
  const int lane = threadIdx.x % 32, first = (threadIdx.x - kThreads) / 32 * kRows;
  const bool inside[2] = {lane >= left && lane < columns, lane + 32 >= left && lane + 32 < columns};
  source += first * int64_t{row_stride} + lane;
  const auto copy = [&](auto has_row) {
#pragma unroll 1
    for (int eight = first; eight < first + kRows; eight += 8) {
#pragma unroll
      for (int i = 0; i < 8; ++i, source += row_stride) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          ptx::copy_async_4(&c[half][eight + i][(lane / 4 ^ i) * 4 + lane % 4], source + half * (kStrip / 2),
                            inside[half] && has_row(eight + i));
      }
    }
  };
  if (above <= 0 && rows >= kTileRows)
    copy([](int) { return true; });
  else
    copy([&](int row) { return row >= above && row < rows; });
}

// kAligned: quads of C are, so that tensor copies take them. kShared: the CTAs of a cluster share the rows of a strip.
// kCouples: W only, for what couples block reflectors.
template <int kWidth, bool kAligned, bool kShared, bool kCouples>
__device__ __forceinline__ void bulk_update(float* h, const float* first_t, const float* t, bool transpose,
                                            float* scales, bool make_scales, bool remake_scales, float column_scale,
                                            int64_t matrix_stride, int row_stride, int rows, int width, int first,
                                            int columns, int known, int strips, const BulkMaps& maps,
                                            [[maybe_unused]] const float* src) {
  constexpr int kSteps = kWidth / 16, kRowBytes = 2 * kWidth;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  BulkShared<kWidth>& shared = *reinterpret_cast<BulkShared<kWidth>*>(shared_memory);

  // Made again where they are needed, as registers are short.
  const auto matrix = [&] { return ptx::recomputed(static_cast<int>(blockIdx.x)) / strips; };
  const auto strip_column = [&] { return ptx::recomputed(static_cast<int>(blockIdx.x)) % strips * kStrip; };
  const auto own = [&] { return Tiles::of_cta<kShared>(ptx::recomputed(rows)); };
  const int tiles = own().count;

  // Sums of many tiles are added up on the way: then W has its place all the time. The last kStages tiles come into the
  // stages that are kept, the last one into the last of these, and are there for the second pass.
  constexpr int kStages = BulkShared<kWidth>::kStages;
  const auto stages_there = [&] { return kStages + (tiles <= kTilesASum); };
  Ring ring{(tiles * stages_there() + kStages - tiles) % stages_there()};
  // By the threads that start copies, of which the first is kThreads: those of the tile into the stage whose turn it
  // is, once all have left it.
  const auto start = [&](int tile) {
    Stage<kWidth>& stage = shared.stages[ring.stage];
    uint64_t* const full = &shared.full[ring.stage];
    const int of_batch = matrix(), row = (own().first + tile) * kTileRows, column = strip_column();
    ptx::mbarrier_wait(&shared.left[ring.stage], ring.parity() ^ 1);
    if (kAligned || threadIdx.x == kThreads) {
      ptx::mbarrier_arrive_expect(full, kAligned ? sizeof(stage) : sizeof(stage.v));
      for (int half = 0; kAligned && half < 2; ++half)
        ptx::copy_tensor(stage.c[half], &maps.c, column + half * (kStrip / 2) - known, row - known, of_batch, full);
      for (int part = 0; part < 2; ++part) ptx::copy_tensor(stage.v[part], &maps.v, 0, part, row, of_batch, full);
    }
    if constexpr (!kAligned) {
      copy_elements(stage.c, src + of_batch * matrix_stride + int64_t{row} * row_stride + column, row_stride,
                    known - row, rows - row, known - column, columns - column);
      ptx::mbarrier_arrive_after_copies(full);
    }
    ring.leave();
  };
  if (threadIdx.x == kThreads) {
    for (int i = 0; i <= kStages; ++i) {
      ptx::mbarrier_init(&shared.full[i], kAligned ? 1 : 1 + kCopyThreads<kAligned>);
      ptx::mbarrier_init(&shared.left[i], kThreads);
    }
    ptx::mbarrier_init(&shared.vacated, kThreads);
    ptx::order_before_copies();
  }
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x < kThreads + kCopyThreads<kAligned>) {
      for (int tile = 0; tile < tiles; ++tile) {
        start(tile);
        ring.next(stages_there());
      }
    }
    __syncwarp();
    if constexpr (kShared) {  // of sum_over_cluster
      cluster_barrier();
      cluster_barrier();
    }
    if (!kCouples && threadIdx.x < kThreads + kCopyThreads<kAligned>) {
      ring.stage = kStages;
      for (int tile = tiles - 1 - kStages; tile >= 0; --tile) {
        if (tile == tiles - 1 - kStages) {
          ptx::mbarrier_wait(&shared.vacated, 0);
          ptx::order_before_copies();
        }
        start(tile);
        ring.back(kStages);
      }
    }
    __syncwarp();
    if (kShared && remake_scales) {
      cluster_barrier();
      cluster_barrier();
    }
    return;
  }
  // By the other threads: the stage of the next tile once it is there, and that they have used what they loaded from
  // it.
  const auto wait = [&]() -> Stage<kWidth>& {
    ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity());
    return shared.stages[ring.stage];
  };
  const auto leave = [&] {
    ptx::mbarrier_arrive(&shared.left[ring.stage]);
    ring.leave();
  };

  if (threadIdx.x < 2 * kStrip) (&shared.magnitude[0][0])[threadIdx.x] = 0;
  if constexpr (!kCouples) copy_t<kWidth>(shared.t, t + matrix() * int64_t{width} * width, width, transpose);
  ptx::copy_async_commit();
  // How many ones of the identity a tile has on its diagonal, for which copies bring zeros.
  const auto ones = [&](int tile) {
    if (known == 0) return 0;
    const int column = strip_column();
    return (own().first + tile) * kTileRows == column ? max(known - column, 0) : 0;
  };

  // A thread has two columns, and of each 16 of 32 rows 0, 1, 8 and 9 from an even one on.
  const auto own_row = [] { return ptx::recomputed(threadIdx.x) / 128 * 32 + threadIdx.x % 4 * 2; };
  const auto own_column = [] { return ptx::recomputed(threadIdx.x) % 128 / 4 * 2; };
  const auto load_c = [&](const Stage<kWidth>& stage, float2(&c)[2][4], int ones) {
    // Rows 8 apart are swizzled alike, and that below an even one has its words in the other places of a pair.
    const unsigned row = own_row(), column = own_column();
    const float* const words = &stage.c[column / (kStrip / 2)][row][0];
    const unsigned even = (column / 4 % 8 ^ row % 8) * 4 + column % 4, odd = (even ^ 4) + 32;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      c[i / 4][i % 4] = *reinterpret_cast<const float2*>(words + i / 2 * 8 * 32 + (i % 2 ? odd : even));
    if (ones == 0) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = static_cast<int>(own_row()) + i / 2 * 8 + i % 2, below = row - static_cast<int>(own_column());
      if (below == 0 && row < ones) c[i / 4][i % 4].x = 1.0f;
      if (below == 1 && row < ones) c[i / 4][i % 4].y = 1.0f;
    }
  };

  // The place of a strip's column in `scales`, if it has one.
  const auto scale_place = [&](unsigned of_strip) -> float* {
    const int column = strip_column() + static_cast<int>(of_strip);
    return column < columns ? scales + matrix() * int64_t{row_stride} + first + column : nullptr;
  };

  // W = Vᵀ·C.
  {
    float w[kWidth / 2] = {};  // of the two columns: 4·j + e and 4·j + 2 + e are of W's row 8·j + 2·(thread % 4) + e
    float2 scale = {kNoScale, kNoScale};
    if constexpr (kCouples) {
      scale = {column_scale, column_scale};
    } else if (!make_scales) {
      const float* const place = scale_place(own_column());
      if constexpr (kAligned)
        scale = place == nullptr ? float2{1.0f, 1.0f} : *reinterpret_cast<const float2*>(place);
      else
        scale = {place == nullptr ? 1.0f : *place, scale_place(own_column() + 1) == nullptr ? 1.0f : place[1]};
      if (threadIdx.x < 128 && threadIdx.x % 4 == 0) *reinterpret_cast<float2*>(&shared.scale[own_column()]) = scale;
    }
    const auto scale_sums = [&](float2 factor) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) w[i] *= i / 2 % 2 ? factor.y : factor.x;
    };
    // In tiles whose elements are too large for the scales, or the first ones.
    const auto lower_scales = [&](const float2(&c)[2][4]) {
      float2 most = {};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        most = {fmaxf(most.x, fabsf(c[i / 4][i % 4].x)), fmaxf(most.y, fabsf(c[i / 4][i % 4].y))};
      const float bound = scale.x < kNoScale && scale.y < kNoScale ? column_scale : 0.0f;
      if (!__any_sync(kFullWarp, 0.5f * fmaxf(most.x * scale.x, most.y * scale.y) > bound)) return;
#pragma unroll
      for (int mask = 1; mask < 4; mask *= 2) {
        most = {fmaxf(most.x, __shfl_xor_sync(kFullWarp, most.x, mask)),
                fmaxf(most.y, __shfl_xor_sync(kFullWarp, most.y, mask))};
      }
      const float2 lowered = {fminf(scale.x, scale_for(most.x, column_scale)),
                              fminf(scale.y, scale_for(most.y, column_scale))};
      scale_sums({ratio_of_scales(lowered.x, scale.x), ratio_of_scales(lowered.y, scale.y)});
      scale = lowered;
    };
    // Brings what the warpgroups have summed to the lowest of their scales.
    const auto align_scales = [&](bool has_sums) {
      const unsigned column = own_column();
      if (threadIdx.x % 4 == 0) *reinterpret_cast<float2*>(&shared.group_scale[threadIdx.x / 128][column]) = scale;
      barrier();
      const float2 a = *reinterpret_cast<const float2*>(&shared.group_scale[0][column]),
                   b = *reinterpret_cast<const float2*>(&shared.group_scale[1][column]);
      scale_sums({ratio_of_scales(fminf(a.x, b.x), scale.x), ratio_of_scales(fminf(a.y, b.y), scale.y)});
      rescale_sums<kWidth>(shared.w, shared.scale, has_sums, [&](int quad) {
        return smaller(*reinterpret_cast<const float4*>(&shared.group_scale[0][quad]),
                       *reinterpret_cast<const float4*>(&shared.group_scale[1][quad]));
      });
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const Stage<kWidth>& stage = wait();
      float2 c[2][4];
      load_c(stage, c, ones(tile));
      if (make_scales) lower_scales(c);
      const uint32_t rows_high = ptx::wgmma_place(&stage.v[0][threadIdx.x / 128 * 32][0]),
                     rows_low = rows_high + sizeof(stage.v[0]) / 16;
      uint32_t c_high[2][4], c_low[2][4];
      const auto split_step = [&](int step) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const float2 x = c[step][i], y = c[step][i + 1];
          const SplitQuad parts = split({x.x * scale.x, y.x * scale.x, x.y * scale.y, y.y * scale.y});
          c_high[step][i] = parts.high.x;
          c_high[step][i + 1] = parts.high.y;
          c_low[step][i] = parts.low.x;
          c_low[step][i + 1] = parts.low.y;
        }
      };
      split_step(0);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t place = step * 16 * kRowBytes / 16;
        float product[kWidth / 2];
        ptx::wgmma_begin();
        ptx::wgmma<kRowBytes, false, true>(product, c_high[step], rows_low + place);
        ptx::wgmma<kRowBytes, true, true>(product, c_low[step], rows_high + place);
        ptx::wgmma<kRowBytes, true, true>(product, c_high[step], rows_high + place);
        ptx::wgmma_commit();
        if (step == 0) split_step(1);
        ptx::wgmma_wait<0>(product);
        if (step == 1 && tile < tiles - kStages) leave();
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) w[i] += product[i];
      }
      ring.next(stages_there());
      if (tile + 1 == tiles || (tile + 1) % kTilesASum == 0) {
        // A barrier either way: all have left the stage that becomes W.
        if (make_scales)
          align_scales(tile >= kTilesASum);
        else
          barrier();
        if (tile + 1 == tiles) ptx::copy_async_wait<0>();  // of T
        const unsigned column = own_column(), lane_pair = threadIdx.x % 4;
        // The warpgroups take turns at each half of W's rows.
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
#pragma unroll
          for (int j = 0; j < kWidth / 8; ++j) {
            // (The warpgroup's number is made again, or else the compiler indexes w by it.)
            if (j / (kWidth / 16) == (ptx::recomputed(static_cast<int>(threadIdx.x / 128)) + turn) % 2) {
              const bool start = turn == 0 && tile < kTilesASum;
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                float2* const place = reinterpret_cast<float2*>(&shared.w[8 * j + lane_pair * 2 + e][column]);
                const float2 sum = start ? float2{} : *place;
                *place = {sum.x + w[4 * j + e], sum.y + w[4 * j + 2 + e]};
                w[4 * j + e] = w[4 * j + 2 + e] = 0.0f;
              }
            }
          }
          barrier();
        }
      }
    }
  }

  if constexpr (kShared) sum_over_cluster<kWidth>(shared.w, shared.scale, make_scales);
  if constexpr (kCouples) {
    if (blockIdx.y == 0)
      make_coupling(shared.w, 1.0f / (kReflectorScale * column_scale), *reinterpret_cast<CouplingSquares*>(shared.kept),
                    first_t + matrix() * int64_t{columns} * columns, columns, t + matrix() * int64_t{width} * width,
                    width, shared.magnitude[0][0], h + matrix() * kCouplingFloats);
    return;
  }
  if (make_scales && threadIdx.x < kStrip) {
    float& scale = shared.scale[threadIdx.x];
    if (scale == kNoScale) scale = 1.0f;  // of zeros
  }
  make_weights<kWidth>(shared.w, shared.t, transpose, shared.magnitude[0], shared.unit,
                       [&](int row, int column, const SplitQuad& parts) {
                         *reinterpret_cast<uint2*>(&shared.weights[0][column][row]) = parts.high;
                         *reinterpret_cast<uint2*>(&shared.weights[1][column][row]) = parts.low;
                       });
  bool moderate = true;
  if (threadIdx.x < kStrip) {
    const float scale = shared.scale[threadIdx.x];
    moderate = scale > exp2f(-kModerate) && scale < exp2f(kModerate);
  }
  moderate = ptx::barrier_and<kThreads>(moderate);

  // Cᵀ ← Cᵀ - Wᵀ·Vᵀ.
  const unsigned column = own_column(), row = own_row();
  uint32_t w_high[kSteps][4], w_low[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned k = 16 * step + threadIdx.x % 4 * 2 + i / 2 * 8;
      w_high[step][i] = *reinterpret_cast<const uint32_t*>(&shared.weights[0][column + i % 2][k]);
      w_low[step][i] = *reinterpret_cast<const uint32_t*>(&shared.weights[1][column + i % 2][k]);
    }
  }
  // Where H is not aligned, neighbouring threads exchange elements: each then stores one column of the rows of both,
  // and a warp fewer parts of sectors.
  const auto is_odd = [] { return !kAligned && ptx::recomputed(threadIdx.x) % 2; };
  const unsigned out_row = row - 2 * is_odd(), out_column = column + is_odd();
  // Of this thread's first row in the tile: what is below it of the matrix if it has the columns, and where it belongs.
  int rows_below = rows - (own().first + tiles - 1) * kTileRows - static_cast<int>(out_row);
  float* target =
      h + matrix() * matrix_stride + (rows - rows_below) * int64_t{row_stride} + first + strip_column() + out_column;
  if (strip_column() + static_cast<int>(out_column) >= columns) rows_below = -rows;
  float2 largest = {};
  ring.stage = kStages - 1;
  const auto update = [&](auto is_moderate) {
    const volatile float* const scale = &shared.scale[column];  // not to be kept in registers
    const volatile float* const unit = &shared.unit[column];
    const float factor[2] = {unit[0] * reciprocal_of_scale(scale[0]), unit[1] * reciprocal_of_scale(scale[1])};
    const auto updated = [&](float x, float product, int i) {
      if constexpr (decltype(is_moderate)::value) return fmaf(-product, factor[i], x);
      return fmaf(-product, unit[i], x * scale[i]) * reciprocal_of_scale(scale[i]);
    };
    for (int tile = tiles - 1; tile >= 0; --tile) {
      const Stage<kWidth>& stage = wait();
      const uint32_t v_high = ptx::wgmma_place(&stage.v[0][threadIdx.x / 128 * 32][0]),
                     v_low = v_high + sizeof(stage.v[0]) / 16;
      float product[16];
      ptx::wgmma_begin();
      ptx::wgmma<kRowBytes, false, false>(product, w_high[0], v_low);
#pragma unroll
      for (int step = 1; step < kSteps; ++step)
        ptx::wgmma<kRowBytes, true, false>(product, w_high[step], v_low + 2 * step);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma<kRowBytes, true, false>(product, w_low[step], v_high + 2 * step);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma<kRowBytes, true, false>(product, w_high[step], v_high + 2 * step);
      ptx::wgmma_commit();
      float2 c[2][4];
      load_c(stage, c, ones(tile));
      ptx::wgmma_wait<0>(product);
      if (tile + 1 == tiles) ptx::mbarrier_arrive(&shared.vacated);  // with the weights in registers
      const int64_t stride = ptx::recomputed(row_stride);            // or else its multiples take registers
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float2& x = c[i / 4][i % 4];
        const int below = i / 2 * 8 + i % 2;
        const float* const from = &product[i / 2 * 4 + i % 2];
        x = {updated(x.x, from[0], 0), updated(x.y, from[2], 1)};
        if constexpr (kAligned) {
          if (below < rows_below) __stcs(reinterpret_cast<float2*>(target + below * stride), x);
        } else {
          const float other = __shfl_xor_sync(kFullWarp, is_odd() ? x.x : x.y, 1);
          if (below < rows_below) __stcs(target + below * stride, is_odd() ? other : x.x);
          if (below + 2 < rows_below) __stcs(target + (below + 2) * stride, is_odd() ? x.y : other);
        }
        largest = {fmaxf(largest.x, fabsf(x.x)), fmaxf(largest.y, fabsf(x.y))};
      }
      leave();
      ring.back(kStages);
      rows_below += kTileRows;
      target -= kTileRows * stride;
    }
  };
  // With a scale that is far from 1, the column's elements are updated in scaled units, in which nothing overflows or
  // is lost.
  if (moderate)
    update(std::true_type{});
  else
    update(std::false_type{});

  if (remake_scales) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      largest = {fmaxf(largest.x, __shfl_xor_sync(kFullWarp, largest.x, mask)),
                 fmaxf(largest.y, __shfl_xor_sync(kFullWarp, largest.y, mask))};
    }
    if (threadIdx.x % 4 == 0) {
      atomicMax(&shared.magnitude[1][column], __float_as_uint(largest.x));
      atomicMax(&shared.magnitude[1][column + 1], __float_as_uint(largest.y));
    }
    if constexpr (kShared)
      cluster_barrier();
    else
      barrier();
    if (threadIdx.x < kStrip && blockIdx.y == 0)
      publish_scale<kShared>(shared.magnitude[1], column_scale, scale_place(threadIdx.x));
    if constexpr (kShared) cluster_barrier();  // the first CTA has read what the others hold
  }
}

template <int kWidth, bool kAligned, bool kShared, bool kCouples>
__global__ void __launch_bounds__(kHopper ? kBulkThreads<kAligned> : 32, kHopper ? 2 : 1)
    block_reflector_bulk_kernel(float* h, const float* first_t, const float* t, bool transpose, float* scales,
                                bool make_scales, bool remake_scales, float column_scale, int64_t matrix_stride,
                                int row_stride, int rows, int width, int first, int columns, int known, int strips,
                                const __grid_constant__ BulkMaps maps, const float* src) {
  if constexpr (kHopper)
    bulk_update<kWidth, kAligned, kShared, kCouples>(h, first_t, t, transpose, scales, make_scales, remake_scales,
                                                     column_scale, matrix_stride, row_stride, rows, width, first,
                                                     columns, known, strips, maps, src);
}

}  // namespace jaxqr::update

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_BULK_KERNEL_CUH_
