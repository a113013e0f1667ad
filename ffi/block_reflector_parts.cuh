// What the kernels of the block-reflector update have in common: the scales of C's columns, and what happens between
// the two passes over C, from the sums of W = Vᵀ·C to the halves of Tᵀ·W or T·W.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_PARTS_CUH_
#define JAXQR_FFI_BLOCK_REFLECTOR_PARTS_CUH_

#include <cstdint>

#include "cluster_ptx.cuh"
#include "float4.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"
#include "warp.cuh"

namespace jaxqr::update {

inline constexpr int kThreads = 256;
inline constexpr int kStrip = 64;     // columns of C a CTA
inline constexpr int kTileRows = 64;  // rows of V and C at a time
inline constexpr int kTilesASum = 16;
// Brings the magnitudes that a scale is made from to [16, 32): far enough above fp16's smallest numbers, and far below
// those that ask for another scale.
inline constexpr float kFirstScale = 0x1p4f;
// Larger than any scale: of a column that has shown no element yet.
inline constexpr float kNoScale = 0x1p127f;
inline constexpr float kWeightScale = 0x1p13f;  // brings scaled weights (at most 2) to the upper part of fp16's range
// Columns with scales outside 2^±kModerate are updated in scaled units.
inline constexpr int kModerate = 90;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kClusters = true;
#else
inline constexpr bool kClusters = false;
#endif

// Whether this is code for Hopper, with what only sm_90a has.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHopper = true;
#else
inline constexpr bool kHopper = false;
#endif

// W, rows of a strip's columns.
template <int kWidth>
using Sums = float[kWidth][kStrip + 4];

// The blocks of 4×4 of T on and above the diagonal, column by column: rows of T for Tᵀ·W, columns of T for T·W.
template <int kWidth>
using Blocks = float[kWidth / 4 * (kWidth / 4 + 1) / 2][4][4];
__device__ __forceinline__ int block_of(int row, int column) { return column * (column + 1) / 2 + row; }

// The scale for elements up to `most`, or that of none.
__device__ __forceinline__ float scale_for(float most, float column_scale) {
  return most > 0.0f ? product_of_scales(power_of_two_scale(most), fminf(kFirstScale, column_scale)) : kNoScale;
}

// What counts in units of the scale `from` counts this many times as much in those of `to`, which is not larger.
__device__ __forceinline__ float ratio_of_scales(float to, float from) { return to * reciprocal_of_scale(from); }

__device__ __forceinline__ float4 scaled(float4 x, float4 to, float4 from) {
  return {x.x * ratio_of_scales(to.x, from.x), x.y * ratio_of_scales(to.y, from.y), x.z * ratio_of_scales(to.z, from.z),
          x.w * ratio_of_scales(to.w, from.w)};
}

__device__ __forceinline__ float4 smaller(float4 x, float4 y) {
  return {fminf(x.x, y.x), fminf(x.y, y.y), fminf(x.z, y.z), fminf(x.w, y.w)};
}

// Of the threads that update.
__device__ __forceinline__ void barrier() { ptx::barrier<kThreads>(); }
__device__ __forceinline__ void cluster_barrier() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// By all threads: asynchronous copies of T, which has `width` rows; zeros elsewhere.
template <int kWidth>
__device__ __forceinline__ void copy_t(Blocks<kWidth>& t, const float* source, int width, bool transpose) {
  if (transpose && width % 4 == 0) {
    constexpr int kQuads = kWidth / 4;
    const int quad = threadIdx.x % kQuads, column = quad * 4;
#pragma unroll
    for (int i = 0; i < kWidth; i += kThreads / kQuads) {
      const int row = i + threadIdx.x / kQuads;
      if (row / 4 <= quad)
        ptx::copy_async_16(&t[block_of(row / 4, quad)][row % 4], source + row * width + column,
                           row < width && column < width);
    }
  } else {
    const int column = threadIdx.x % kWidth;
#pragma unroll 4
    for (int row = threadIdx.x / kWidth; row < kWidth; row += kThreads / kWidth) {
      float (&block)[4][4] = t[block_of(row / 4, column / 4)];
      if (row / 4 <= column / 4)
        ptx::copy_async_4(transpose ? &block[row % 4][column % 4] : &block[column % 4][row % 4],
                          source + row * width + column, row < width && column < width);
    }
  }
}

// By all threads, after a barrier: brings what W's columns have summed from the units of `scale` to those of `lowest`
// of four columns, which `scale` then is. Where there are sums it ends with a barrier.
template <int kWidth, typename Lowest>
__device__ __forceinline__ void rescale_sums(Sums<kWidth>& w, float (&scale)[kStrip], bool has_sums, Lowest lowest) {
  const int quad = threadIdx.x % (kStrip / 4) * 4;
  const float4 to = lowest(quad);
  if (has_sums) {
    const float4 from = *reinterpret_cast<const float4*>(&scale[quad]);
    for (int k = threadIdx.x / (kStrip / 4); k < kWidth; k += kThreads / (kStrip / 4)) {
      float4* const place = reinterpret_cast<float4*>(&w[k][quad]);
      *place = scaled(*place, to, from);
    }
    barrier();
  }
  if (threadIdx.x < kStrip / 4) *reinterpret_cast<float4*>(&scale[quad]) = to;
}

// By all threads of a cluster: W becomes the sum of its CTAs' in the order of their ranks, in units of the lowest of
// their scales where these differ. Each CTA adds a part of W, and gives it to all.
template <int kWidth>
__device__ __forceinline__ void sum_over_cluster(Sums<kWidth>& w, float (&scale)[kStrip], bool scales_differ) {
  const int shares = static_cast<int>(gridDim.y), part = kWidth * kStrip / 4 / shares;  // in quads
  float* const own_scale = &scale[4 * threadIdx.x % kStrip];
  const auto scale_of = [&](int other) {
    return ptx::load_from_cluster(ptx::map_to_rank(ptx::shared_address(own_scale), other));
  };
  cluster_barrier();
  float4 lowest = {kNoScale, kNoScale, kNoScale, kNoScale};
  for (int other = 0; scales_differ && other < shares; ++other) lowest = smaller(lowest, scale_of(other));
  // Always of the same columns.
  for (int i = static_cast<int>(blockIdx.y) * part + threadIdx.x; i < static_cast<int>(blockIdx.y + 1) * part;
       i += kThreads) {
    const uint32_t place = ptx::shared_address(&w[4 * i / kStrip][4 * i % kStrip]);
    float4 sum = {};
#pragma unroll 8
    for (int other = 0; other < shares; ++other) {
      float4 own = ptx::load_from_cluster(ptx::map_to_rank(place, other));
      if (scales_differ) own = scaled(own, lowest, scale_of(other));
      sum = {sum.x + own.x, sum.y + own.y, sum.z + own.z, sum.w + own.w};
    }
    for (int other = 0; other < shares; ++other) ptx::store_to_cluster(ptx::map_to_rank(place, other), sum);
  }
  cluster_barrier();  // all have read and given; the last access to another CTA's memory
  if (scales_differ) {
    if (threadIdx.x < kStrip / 4) *reinterpret_cast<float4*>(own_scale) = lowest;
    barrier();
  }
}

// By all threads: Tᵀ·W or T·W, a lane two columns, a warp a quad of rows and, as T's zeros are skipped, its mirror
// image. The result's columns are scaled by powers of two of their own and split: store(row, column, parts) gets four
// rows from `row` on, once no thread reads W and T any more. `unit` becomes what one of the last product counts in a
// column, and `magnitude`, which was 0, the columns' largest magnitudes as bits, which order like the values.
template <int kWidth, typename Store>
__device__ __forceinline__ void make_weights(const Sums<kWidth>& w, const Blocks<kWidth>& t, bool transpose,
                                             unsigned (&magnitude)[kStrip], float (&unit)[kStrip], Store store) {
  constexpr int kQuads = kWidth / 4, kTurns = kQuads / 8;
  static_assert(kQuads % 8 == 0, "the quads of W's rows cover the warps");
  const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * 2;
  const auto quad_of = [&](int turn) { return turn == 0 ? warp : kQuads - 1 - warp; };
  float result[kTurns][2][4] = {};
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int quad = quad_of(turn), last = transpose ? quad : kQuads - 1;
#pragma unroll 1
    for (int other = transpose ? 0 : quad; other <= last; ++other) {
      const float (&block)[4][4] = t[transpose ? block_of(other, quad) : block_of(quad, other)];
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const float4 t_row = *reinterpret_cast<const float4*>(block[l]);
        const float2 w_row = *reinterpret_cast<const float2*>(&w[4 * other + l][column]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          result[turn][0][i] = fmaf(element(t_row, i), w_row.x, result[turn][0][i]);
          result[turn][1][i] = fmaf(element(t_row, i), w_row.y, result[turn][1][i]);
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kTurns; ++i) most = fmaxf(most, fabsf(result[i / 4][c][i % 4]));
    atomicMax(&magnitude[column + c], __float_as_uint(most));
  }
  barrier();
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float scale = power_of_two_scale(__uint_as_float(magnitude[column + c]));
    // Here and in the last product V's scale counts.
    if (warp == 0)
      unit[column + c] = reciprocal_of_scale(scale) * (1.0f / (kReflectorScale * kReflectorScale * kWeightScale));
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto scaled = [&](int i) { return result[turn][c][i] * scale * kWeightScale; };
      store(4 * quad_of(turn), column + c, split({scaled(0), scaled(1), scaled(2), scaled(3)}));
    }
  }
}

// By the first kStrip threads of a CTA: the scale for later updates of the thread's column, from the largest magnitudes
// that the CTAs of a cluster, or where there is none this one, have written. `place` is where it belongs, if anywhere.
template <bool kShared>
__device__ __forceinline__ void publish_scale(const unsigned (&magnitude)[kStrip], float column_scale, float* place) {
  const unsigned* const own = &magnitude[threadIdx.x];
  float most = __uint_as_float(*own);
  if constexpr (kShared && kClusters) {
    for (int other = 1; other < static_cast<int>(gridDim.y); ++other)
      most = fmaxf(most, ptx::load_float_from_cluster(ptx::map_to_rank(ptx::shared_address(own), other)));
  }
  if (place != nullptr) *place = product_of_scales(power_of_two_scale(most), column_scale);
}

// Which tiles of a matrix a CTA has: all, or its share in a cluster.
struct Tiles {
  int first, count;

  template <bool kShared>
  __device__ __forceinline__ static Tiles of_cta(int rows) {
    const int all = (rows + kTileRows - 1) / kTileRows;
    if constexpr (!(kShared && kClusters)) return {0, all};
    const int share = static_cast<int>(blockIdx.y), shares = static_cast<int>(gridDim.y);
    return {all * share / shares, all * (share + 1) / shares - all * share / shares};
  }
};

}  // namespace jaxqr::update

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_PARTS_CUH_
