// The update by two neighbouring block reflectors in one pass over C, on Hopper, where quads of C are aligned:
//
//   W₁ = V₁ᵀ·C, W₂ = V₂ᵀ·C,   weights (W₁ᵀ W₂ᵀ)·T for T = (T₁ T₁₂; 0 T₂), T₁₂ = -T₁·V₁ᵀ·V₂·T₂,   C -= V₁·w₁ + V₂·w₂
//
// It moves C, and makes halves of it, as often as the update by one. A multiprocessor has one CTA, which takes strip
// after strip of 64 columns by tickets, as other kernels may have some multiprocessors for a while. Its parts are those
// of block_reflector_bulk_kernel.cuh, but
//
// - a warpgroup has every other tile, whole, as products of 32 rows take the tensor cores longer than half of 64. They
//   take turns with their products, so that one multiplies while the other does the rest;
// - the weights too are products of warpgroups: W is a factor as it lies in registers, and so are the weights. T comes
//   as halves, as one more tile. Its products leave the accumulators, which truncate, every 16 reflectors;
// - copies of the next strip's tiles start while this one is finished.
//
// Waits end whatever the data are, and no loop's count depends on them. Resources: 384 threads, of which 256 raise
// their registers to 232; 226 KB of shared memory.
#ifndef JAXQR_FFI_TWO_BLOCK_REFLECTORS_KERNEL_CUH_
#define JAXQR_FFI_TWO_BLOCK_REFLECTORS_KERNEL_CUH_

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "block_reflector_parts.cuh"
#include "bulk_ptx.cuh"
#include "coupling.cuh"
#include "wgmma_ptx.cuh"

namespace jaxqr::update::two {

inline constexpr int kAllThreads = kThreads + 128;  // with the warpgroup of the thread that starts the copies
inline constexpr int kStages = 4, kKept = kStages - 1;

// Swizzled as in block_reflector_bulk_kernel.cuh; or T's blocks in the place of all.
union Stage {
  struct {
    __half v[2][2][kTileRows][kWidth];  // of the two: high and low parts
    float c[2][kTileRows][kStrip / 2];  // left and right half
  };
  __half t[3][2][kWidth][kWidth];
};

struct __align__(1024) Shared {
  Stage stages[kStages];
  float4 sums[2 * kWidth * kStrip / 4 / 128][128];  // a thread's of a warpgroup, as they lie in registers
  float group_scale[2][kStrip];                     // of C's columns: those in whose units a warpgroup sums
  float scale[kStrip];                              // those in whose units a CTA of a cluster sums
  unsigned magnitude[kStrip];                       // of C's columns after the update, as bits
  int strip[2];                                     // this one and the next one by turns
  uint64_t full[kStages], left[kStages];            // a stage has come, and may go
};

struct Maps {
  CUtensorMap v[2], c, t;
};

struct Arguments {
  float* h;  // the first element of the first row
  const float* coupling;
  int* tickets;  // of the next strip, from 0 on; not where CTAs share a strip
  float* scales;
  bool make_scales;
  float column_scale;
  int64_t matrix_stride;
  int row_stride, rows, first_width, first, columns, strips, all_strips;
};

// The stages in turn, back and forth, and the parities of the phases that their mbarriers are in. A strip's tiles come
// in one direction, then T, then the tiles from the last one on in the other, in which the next strip goes on: so the
// last kKept tiles are still there, and what is freed first is filled first.
struct Ring {
  int stage = 0, direction = 1;
  unsigned phases = 0;

  __device__ __forceinline__ unsigned parity() const { return phases >> stage & 1; }
  __device__ __forceinline__ void leave() { phases ^= 1u << stage; }
  __device__ __forceinline__ void next() { stage = (stage + direction) & (kStages - 1); }
  __device__ __forceinline__ void turn() {
    direction = -direction;
    next();
  }
};

// By the warpgroup that copies, of which one thread starts the copies.
template <bool kShared>
__device__ __forceinline__ void copy(Shared& shared, const Arguments& a, const Maps& maps) {
  const Tiles tiles = Tiles::of_cta<kShared>(a.rows);
  const bool starts = threadIdx.x == kThreads;
  Ring ring;
  const auto acquire = [&]() -> uint64_t* {
    ptx::mbarrier_wait(&shared.left[ring.stage], ring.parity() ^ 1);
    ring.leave();
    return &shared.full[ring.stage];
  };
  const auto draw = [&] { return atomicAdd(a.tickets, 1); };
  int strip = kShared ? static_cast<int>(blockIdx.x) : starts ? draw() : 0;
  for (int turn = 0; starts || (kShared && turn == 0); turn ^= 1) {
    const int matrix = strip / a.strips, column = strip % a.strips * kStrip;
    const auto fill = [&](int tile) {
      Stage& stage = shared.stages[ring.stage];
      uint64_t* const full = acquire();
      ptx::mbarrier_arrive_expect(full, sizeof(stage));
      const int row = (tiles.first + tile) * kTileRows;
      for (int half = 0; half < 2; ++half)
        ptx::copy_tensor(stage.c[half], &maps.c, column + half * (kStrip / 2), row, matrix, full);
      for (int block = 0; block < 2; ++block) {
        for (int part = 0; part < 2; ++part)
          ptx::copy_tensor(stage.v[block][part], &maps.v[block], 0, part, row - block * a.first_width, matrix, full);
      }
    };
    int next = a.all_strips;
    if (starts) {
      // When what is filled next may be filled, the strip before the last one has been read.
      ptx::mbarrier_wait(&shared.left[ring.stage], ring.parity() ^ 1);
      shared.strip[turn] = strip < a.all_strips ? strip : -1;
      if (strip >= a.all_strips) {
        ptx::mbarrier_arrive(&shared.full[ring.stage]);
        return;
      }
      for (int tile = 0; tile < tiles.count; ++tile) {
        fill(tile);
        ring.next();
      }
      Stage& stage = shared.stages[ring.stage];
      uint64_t* const full = acquire();
      ptx::mbarrier_arrive_expect(full, sizeof(stage));
      ptx::copy_tensor(&stage, &maps.t, 0, 0, 0, matrix, full);
      if (!kShared) next = draw();
    }
    if constexpr (kShared) {  // of the sums
      __syncwarp();
      cluster_barrier();
      cluster_barrier();
    }
    if (starts) {
      ring.turn();
      for (int tile = tiles.count - 1; tile >= 0; --tile) {
        if (tile < tiles.count - kKept) fill(tile);
        ring.next();
      }
    }
    if (kShared && a.make_scales) {
      __syncwarp();
      cluster_barrier();
      cluster_barrier();
    }
    strip = next;
  }
}

// By a warpgroup that multiplies.
template <bool kShared>
__device__ __forceinline__ void multiply(Shared& shared, const Arguments& a) {
  const Tiles tiles = Tiles::of_cta<kShared>(a.rows);
  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x / 128), 0), thread = threadIdx.x % 128;
  // A thread has two columns of C, and of each 16 rows 0, 1, 8 and 9 from an even one on.
  const int column = thread / 4 * 2, first_row = thread % 4 * 2;
  Ring ring;
  const auto wait = [&]() -> const Stage& {
    ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity());
    return shared.stages[ring.stage];
  };
  const auto leave = [&] {
    ptx::mbarrier_arrive(&shared.left[ring.stage]);
    ring.leave();
  };
  // Two barriers, at which a warpgroup waits for its turn, and of which it opens the other's.
  const auto begin_turn = [&] { ptx::barrier_sync<kThreads>(2 + group); };
  const auto end_turn = [&] { ptx::barrier_arrive<kThreads>(3 - group); };
  if (group == 1) end_turn();
  const auto end_pass = [&] {
    if (group == 0 || tiles.count % 2 == 0) return;
    begin_turn();  // a turn without a tile
    end_turn();
  };
  const auto load_c = [&](const Stage& stage, int step, float2(&c)[4]) {
    // Rows 8 apart are swizzled alike, and that below an even one has its words in the other places of a pair.
    const float* const words = &stage.c[column / (kStrip / 2)][first_row + 16 * step][0];
    const int even = (column / 4 % 8 ^ first_row) * 4 + column % 4, odd = (even ^ 4) + 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = *reinterpret_cast<const float2*>(words + i / 2 * 8 * 32 + (i % 2 ? odd : even));
  };
  const auto most_of_lanes = [](float2 most) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      most = {fmaxf(most.x, __shfl_xor_sync(kFullWarp, most.x, mask)),
              fmaxf(most.y, __shfl_xor_sync(kFullWarp, most.y, mask))};
    }
    return most;
  };

  for (int turn = 0;; turn ^= 1) {
    wait();
    const int strip = shared.strip[turn];
    if (strip < 0) {
      if (group == 0) begin_turn();  // the last arrival
      return;
    }
    const int matrix = strip / a.strips, strip_column = strip % a.strips * kStrip;
    const auto scale_place = [&](int of_strip) -> float* {
      return strip_column + of_strip < a.columns
                 ? a.scales + matrix * int64_t{a.row_stride} + a.first + strip_column + of_strip
                 : nullptr;
    };

    // (W₁ᵀ W₂ᵀ): 4·j + e and 4·j + 2 + e of w[block] are of its column 8·j + 2·(thread % 4) + e, of the two rows.
    float w[2][kWidth / 2] = {};
    float2 scale = {kNoScale, kNoScale}, sum_scale = scale;  // of the columns, and those of the sums in shared memory
    if (!a.make_scales) {
      const float* const place = scale_place(column);
      sum_scale = scale = place == nullptr ? float2{1.0f, 1.0f} : *reinterpret_cast<const float2*>(place);
    }
    const auto scale_sums = [&](float2 factor) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) w[i / (kWidth / 2)][i % (kWidth / 2)] *= i / 2 % 2 ? factor.y : factor.x;
    };
    const auto ratio = [](float2 to, float2 from) -> float2 {
      return {ratio_of_scales(to.x, from.x), ratio_of_scales(to.y, from.y)};
    };
    // In tiles whose elements are too large for the scales, or the first ones.
    const auto lower_scales = [&](const Stage& stage) {
      float2 most = {};
#pragma unroll
      for (int step = 0; step < kTileRows / 16; ++step) {
        float2 c[4];
        load_c(stage, step, c);
#pragma unroll
        for (const float2& x : c) most = {fmaxf(most.x, fabsf(x.x)), fmaxf(most.y, fabsf(x.y))};
      }
      const float bound = scale.x < kNoScale && scale.y < kNoScale ? a.column_scale : 0.0f;
      if (!__any_sync(kFullWarp, 0.5f * fmaxf(most.x * scale.x, most.y * scale.y) > bound)) return;
      most = most_of_lanes(most);
      const float2 lowered = {fminf(scale.x, scale_for(most.x, a.column_scale)),
                              fminf(scale.y, scale_for(most.y, a.column_scale))};
      scale_sums(ratio(lowered, scale));
      scale = lowered;
    };
    // A warpgroup adds what it has to the sums of both, in turns at each half of them.
    const auto add_to_sums = [&](bool first) {
      float2 factor = {1.0f, 1.0f};
      if (a.make_scales) {
        if (thread % 4 == 0) *reinterpret_cast<float2*>(&shared.group_scale[group][column]) = scale;
        barrier();
        const float2 other = *reinterpret_cast<const float2*>(&shared.group_scale[1 - group][column]);
        const float2 lowest = {fminf(scale.x, other.x), fminf(scale.y, other.y)};
        scale_sums(ratio(lowest, scale));
        if (!first) factor = ratio(lowest, sum_scale);
        scale = sum_scale = lowest;
      }
      barrier();  // all have read what was there
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int quad = 0; quad < kWidth / 4; ++quad) {
          // (The warpgroup's number is made again, or else the compiler indexes w by it.)
          if (quad / (kWidth / 8) != (ptx::recomputed(group) ^ half)) continue;
          float4& place = shared.sums[quad][thread];
          float* const own = &w[quad / (kWidth / 8)][quad % (kWidth / 8) * 4];
          float4 sum = {};
          if (half == 1 || !first) sum = place;
          if (half == 0) sum = {sum.x * factor.x, sum.y * factor.x, sum.z * factor.y, sum.w * factor.y};
          place = {sum.x + own[0], sum.y + own[1], sum.z + own[2], sum.w + own[3]};
          own[0] = own[1] = own[2] = own[3] = 0.0f;
        }
        barrier();
      }
    };

    // Products with 16 of V's rows or T's, low parts first, for W or the weights.
    const auto start_products = [&](float (&product)[kWidth / 2], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                    uint32_t rows) {
      constexpr int kRowBytes = 2 * kWidth;
      constexpr uint32_t kLow = kWidth * kRowBytes / 16;
      ptx::wgmma_begin();
      ptx::wgmma<kRowBytes, false, true>(product, high, rows + kLow);
      ptx::wgmma<kRowBytes, true, true>(product, low, rows);
      ptx::wgmma<kRowBytes, true, true>(product, high, rows);
      ptx::wgmma_commit();
    };
    constexpr uint32_t kStep = 16 * 2 * kWidth / 16, kBlock = 2 * kWidth * 2 * kWidth / 16;  // in 16-byte words
    const auto add = [](float (&sums)[kWidth / 2], const float (&product)[kWidth / 2]) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) sums[i] += product[i];
    };

    int since_sum = 0;
    bool first_sum = true;
    const auto stays = [&](int tile) { return tile >= tiles.count - kKept; };
    for (int i = 0; i < tiles.count; ++i) {
      const Stage& stage = wait();
      if (i % 2 == group) {
        if (a.make_scales) lower_scales(stage);
        const uint32_t place = ptx::wgmma_place(&stage.v);
        uint32_t high[2][4], low[2][4];
        const auto split_step = [&](int step) {
          float2 c[4];
          load_c(stage, step, c);
#pragma unroll
          for (int k = 0; k < 4; k += 2) {
            const float2 x = c[k], y = c[k + 1];
            const SplitQuad parts = split({x.x * scale.x, y.x * scale.x, x.y * scale.y, y.y * scale.y});
            high[step % 2][k] = parts.high.x;
            high[step % 2][k + 1] = parts.high.y;
            low[step % 2][k] = parts.low.x;
            low[step % 2][k + 1] = parts.low.y;
          }
        };
        float product[2][kWidth / 2];
        split_step(0);
        begin_turn();
#pragma unroll
        for (int block = 0; block < 2; ++block) start_products(product[block], high[0], low[0], place + block * kBlock);
#pragma unroll
        for (int step = 1; step < kTileRows / 16; ++step) {
          split_step(step);
#pragma unroll
          for (int block = 0; block < 2; ++block) {
            ptx::wgmma_wait<1>(product[block]);
            add(w[block], product[block]);
            start_products(product[block], high[step % 2], low[step % 2], place + block * kBlock + step * kStep);
          }
        }
        end_turn();
        ptx::wgmma_wait<1>(product[0]);
        add(w[0], product[0]);
        ptx::wgmma_wait<0>(product[1]);
        if (!stays(i)) leave();
        add(w[1], product[1]);
      } else if (!stays(i)) {
        leave();
      }
      ring.next();
      if (++since_sum == kTilesASum && i + 1 < tiles.count) {
        add_to_sums(first_sum);
        first_sum = false;
        since_sum = 0;
      }
    }
    end_pass();
    add_to_sums(first_sum);

    if constexpr (kShared) {
      if (a.make_scales && thread % 4 == 0) *reinterpret_cast<float2*>(&shared.scale[column]) = scale;
      cluster_barrier();
      // Each CTA adds a part of the sums, always of the same columns, and gives it to all.
      const int shares = static_cast<int>(gridDim.y), part = kWidth * kStrip / 2 / shares;  // in quads
      float2 lowest = scale;
      const auto scale_of = [&](int other) -> float2 {
        const uint32_t place = ptx::map_to_rank(ptx::shared_address(&shared.scale[column]), other);
        return {ptx::load_float_from_cluster(place), ptx::load_float_from_cluster(place + sizeof(float))};
      };
      for (int other = 0; a.make_scales && other < shares; ++other) {
        const float2 of_other = scale_of(other);
        lowest = {fminf(lowest.x, of_other.x), fminf(lowest.y, of_other.y)};
      }
      for (int i = static_cast<int>(blockIdx.y) * part + threadIdx.x; i < static_cast<int>(blockIdx.y + 1) * part;
           i += kThreads) {
        const uint32_t place = ptx::shared_address(&shared.sums[i / 128][thread]);
        float4 sum = {};
#pragma unroll 4
        for (int other = 0; other < shares; ++other) {
          const float2 factor = a.make_scales ? ratio(lowest, scale_of(other)) : float2{1.0f, 1.0f};
          const float4 own = ptx::load_from_cluster(ptx::map_to_rank(place, other));
          sum = {fmaf(own.x, factor.x, sum.x), fmaf(own.y, factor.x, sum.y), fmaf(own.z, factor.y, sum.z),
                 fmaf(own.w, factor.y, sum.w)};
        }
        for (int other = 0; other < shares; ++other) ptx::store_to_cluster(ptx::map_to_rank(place, other), sum);
      }
      scale = lowest;
      cluster_barrier();  // all have read and given; the last access to another CTA's sums
    }
#pragma unroll
    for (int quad = 0; quad < kWidth / 4; ++quad) {
      const float4 sum = shared.sums[quad][thread];
      float* const own = &w[quad / (kWidth / 8)][quad % (kWidth / 8) * 4];
      own[0] = sum.x;
      own[1] = sum.y;
      own[2] = sum.z;
      own[3] = sum.w;
    }
    if (a.make_scales) scale = {scale.x == kNoScale ? 1.0f : scale.x, scale.y == kNoScale ? 1.0f : scale.y};  // zeros'

    // The weights: columns are scaled by powers of two of their own before they become halves.
    float2 unit;  // what one of the last product counts in a scaled column
    uint32_t high[2 * kWidth / 16][4], low[2 * kWidth / 16][4];
    const auto split_sums = [&](float (&sums)[2][kWidth / 2]) -> float2 {
      float2 most = {};
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) {
        const float* const x = &sums[i / (kWidth / 2)][i % (kWidth / 2)];
        most = {fmaxf(most.x, fmaxf(fabsf(x[0]), fabsf(x[1]))), fmaxf(most.y, fmaxf(fabsf(x[2]), fabsf(x[3])))};
      }
      most = most_of_lanes(most);
      const float2 scale = {power_of_two_scale(most.x), power_of_two_scale(most.y)};
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) {
        const float* const x = &sums[i / (kWidth / 2)][i % (kWidth / 2)];
        const SplitQuad parts = split({x[0] * scale.x * kWeightScale, x[1] * scale.x * kWeightScale,
                                       x[2] * scale.y * kWeightScale, x[3] * scale.y * kWeightScale});
        const int step = i / 8, place = i / 4 % 2 * 2;
        high[step][place] = parts.high.x;
        high[step][place + 1] = parts.high.y;
        low[step][place] = parts.low.x;
        low[step][place + 1] = parts.low.y;
      }
      return scale;
    };
    {
      const float2 w_scale = split_sums(w);
      const Stage& stage = wait();
      const uint32_t place = ptx::wgmma_place(&stage.t);
      float weights[2][kWidth / 2] = {}, product[2][kWidth / 2];
      // First the weights of the first block reflector, then those of the second.
      constexpr int kSteps = kWidth / 16;
      const auto start = [&](int item) {
        const int block = item >= kSteps, step = item - block * kSteps;
        start_products(product[item % 2], high[step], low[step],
                       place + (block + step / kSteps) * kBlock + step % kSteps * kStep);
      };
      start(0);
#pragma unroll
      for (int item = 0; item < 3 * kSteps; ++item) {
        if (item + 1 < 3 * kSteps) {
          start(item + 1);
          ptx::wgmma_wait<1>(product[item % 2]);
        } else {
          ptx::wgmma_wait<0>(product[item % 2]);
        }
        add(weights[item >= kSteps], product[item % 2]);
      }
      leave();
      ring.turn();
      const float t_scale = coupling_t_scale(a.coupling, matrix);
      const float2 weight_scale = split_sums(weights);
      // V's scale counts in W and in the last product, that of weights in T's product and in the last one.
      constexpr float kUnit = 1.0f / (kReflectorScale * kReflectorScale) / (kWeightScale * kWeightScale);
      const auto unit_of = [&](float of_w, float of_weight) {
        return reciprocal_of_scale(of_weight) * kUnit * reciprocal_of_scale(t_scale) * reciprocal_of_scale(of_w);
      };
      unit = {unit_of(w_scale.x, weight_scale.x), unit_of(w_scale.y, weight_scale.y)};
    }

    // Cᵀ ← Cᵀ - weights·(V₁ V₂)ᵀ.
    const float2 unscale = {reciprocal_of_scale(scale.x), reciprocal_of_scale(scale.y)},
                 factor = {unit.x * unscale.x, unit.y * unscale.y};
    const auto is_moderate = [](float scale) { return scale > exp2f(-kModerate) && scale < exp2f(kModerate); };
    const bool moderate = __all_sync(kFullWarp, is_moderate(scale.x) && is_moderate(scale.y));
    float2 largest = {};
    for (int i = 0; i < tiles.count; ++i) {
      const Stage& stage = wait();
      if (i % 2 == group) {
        const int tile = tiles.count - 1 - i;
        const uint32_t place = ptx::wgmma_place(&stage.v);
        const auto rows_at = [&](int part, int step) {
          return place + step / (kWidth / 16) * kBlock + part * (kBlock / 2) + 2 * (step % (kWidth / 16));
        };
        constexpr int kRowBytes = 2 * kWidth, kSteps = 2 * kWidth / 16;
        float product[kTileRows / 2];
        begin_turn();
        ptx::wgmma_begin();
        ptx::wgmma<kRowBytes, false, false>(product, high[0], rows_at(1, 0));
#pragma unroll
        for (int step = 1; step < kSteps; ++step)
          ptx::wgmma<kRowBytes, true, false>(product, high[step], rows_at(1, step));
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma<kRowBytes, true, false>(product, low[step], rows_at(0, step));
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma<kRowBytes, true, false>(product, high[step], rows_at(0, step));
        ptx::wgmma_commit();
        end_turn();
        const int row = (tiles.first + tile) * kTileRows + first_row;
        const int rows_below = strip_column + column < a.columns ? a.rows - row : 0;
        const bool whole = (tiles.first + tile + 1) * kTileRows <= a.rows && strip_column + kStrip <= a.columns;
        const int64_t stride = a.row_stride;
        float* const target =
            a.h + matrix * a.matrix_stride + row * int64_t{a.row_stride} + a.first + strip_column + column;
        float2 c[kTileRows / 16][4];
#pragma unroll
        for (int step = 0; step < kTileRows / 16; ++step) load_c(stage, step, c[step]);
        ptx::wgmma_wait<0>(product);
        const auto finish = [&](auto updated, auto store) {
          float* place = target;
#pragma unroll
          for (int k = 0; k < kTileRows / 4; ++k) {
            const float* const from = &product[k / 2 * 4 + k % 2];
            const float2 x = updated(c[k / 4][k % 4], float2{from[0], from[2]});
            store(reinterpret_cast<float2*>(place), k / 2 * 8 + k % 2, x);
            place += (k % 2 == 0 ? 1 : 7) * stride;
            largest = {fmaxf(largest.x, fabsf(x.x)), fmaxf(largest.y, fabsf(x.y))};
          }
        };
        if (moderate && whole) {
          finish([&](float2 x, float2 y) -> float2 { return {fmaf(-y.x, factor.x, x.x), fmaf(-y.y, factor.y, x.y)}; },
                 [](float2* place, int, float2 x) { __stcs(place, x); });
        } else {
          finish(
              [&](float2 x, float2 y) -> float2 {
                if (moderate) return {fmaf(-y.x, factor.x, x.x), fmaf(-y.y, factor.y, x.y)};
                // In scaled units, in which nothing overflows or is lost.
                return {fmaf(-y.x, unit.x, x.x * scale.x) * unscale.x, fmaf(-y.y, unit.y, x.y * scale.y) * unscale.y};
              },
              [&](float2* place, int below, float2 x) {
                if (below < rows_below) __stcs(place, x);
              });
        }
      }
      leave();
      ring.next();
    }
    end_pass();

    if (a.make_scales) {
      largest = most_of_lanes(largest);
      if (thread % 4 == 0) {
        atomicMax(&shared.magnitude[column], __float_as_uint(largest.x));
        atomicMax(&shared.magnitude[column + 1], __float_as_uint(largest.y));
      }
      if constexpr (kShared)
        cluster_barrier();
      else
        barrier();
      if (threadIdx.x < kStrip && blockIdx.y == 0)
        publish_scale<kShared>(shared.magnitude, a.column_scale, scale_place(threadIdx.x));
      if constexpr (kShared) cluster_barrier();  // the first CTA has read what the others hold
      if (threadIdx.x < kStrip) shared.magnitude[threadIdx.x] = 0;
    }
  }
}

template <bool kShared>
__global__ void __launch_bounds__(kHopper ? kAllThreads : 32, 1)
    two_block_reflectors_kernel(const Arguments arguments, const __grid_constant__ Maps maps) {
  if constexpr (kHopper) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
    if (threadIdx.x < kStrip) shared.magnitude[threadIdx.x] = 0;
    if (threadIdx.x == kThreads) {
      for (int i = 0; i < kStages; ++i) {
        ptx::mbarrier_init(&shared.full[i], 1);
        ptx::mbarrier_init(&shared.left[i], kThreads);
      }
      ptx::order_before_copies();
    }
    __syncthreads();
    if (threadIdx.x >= kThreads) {
      ptx::lower_registers<40>();
      copy<kShared>(shared, arguments, maps);
    } else {
      ptx::raise_registers<232>();
      multiply<kShared>(shared, arguments);
    }
  }
}

}  // namespace jaxqr::update::two

#endif  // JAXQR_FFI_TWO_BLOCK_REFLECTORS_KERNEL_CUH_
