// The fused block-reflector update on Hopper, for matrices whose rows a CTA or a cluster of them can hold: V in shared
// memory, C in registers.
//
// A cluster takes strips of kStrip columns of one matrix, one after another. Its CTAs share the rows in tiles of
// kTileRows, at most kTiles of them a warpgroup, and each warpgroup
//
//   1. holds its tiles of V as swizzled halves for all strips, and its part of a strip as float32: both are read once;
//   2. makes its part of Wᵀ = Cᵀ·V, where Cᵀ is split into pairs of halves in registers; warpgroup 0 adds those of the
//      CTA, then all CTAs add those of the cluster, in the order of their ranks;
//   3. makes Wᵀ ← Wᵀ·T or Wᵀ·Tᵀ, of which all CTAs need the whole (warpgroup 0 of each);
//   4. makes its part of Cᵀ ← Cᵀ - Wᵀ·Vᵀ, writes it, and starts to load the same rows of the next strip in its place.
//
// The products are transposed so that C is their operand in registers: of a tile the thread of row group g, part t of
// its warp has rows 8j + 2t and 8j + 2t + 1, and of the warp's 16 columns 2g and 2g + 1, which are rows g and g + 8 of
// the product, so that they lie side by side in memory; shared memory has columns in the order of the product. A thread
// has the same elements of C in steps 2 and 4.
//
// Operands have exact power-of-two scales: C's columns those of all updates, T one, W's columns one before and one
// after step 3. Tensor cores truncate a sum to float32 with every 16 terms that they add. So products with a low part
// come first, while sums are small: only the last four to eight additions count, and the accumulators are left every
// kTiles·kTileRows rows. Step 3 takes all four products of parts, as T multiplies the error of what it is given.
//
// Every element of C belongs to one thread of one CTA; sums have a fixed order; no loop's count depends on the data.
//
// Synchronization. The barriers of a strip, in order, those of the cluster being the CTA's where it has one CTA:
//
//   1  cluster      largest magnitudes of the CTAs are there (only where scales are made)
//   2  CTA          parts of warpgroups 1 … are there
//   3  cluster      sums of the CTAs are there
//   4  CTA          the cluster's sum is there (3, 4 and 8 only with several CTAs)
//   5  warpgroup 0  halves of Wᵀ are there
//   6  warpgroup 0  its products have read them
//   7  CTA          halves of Wᵀ·T, and units, are there
//   8  cluster      all have read the others' sums: they arrive before 4 and wait at the end
//
//   magnitude  atomics of the CTA; 1; read by the cluster; 2 (of one CTA) or 3; zeroed; 7; atomics
//   sums       written by warpgroups 1 …; 2; read by warpgroup 0, whose threads write what they read to [0]; 3; the
//              cluster reads [0], all write [1]; 4; warpgroup 0 reads [1]; 7 and 8; written
//   weights    written by warpgroup 0; 5; read by its products; 6; written; 7; read by the products of all, who wait
//   for
//              them; 2; written
//   unit       written and read again by one thread; 7; read by all; 2; written
//
// V, T and the pointers are written before the last barrier of the prologue and only read after it. Who has written an
// operand of products publishes it to the tensor cores before the barrier. Barrier 1 or 3 comes before the first access
// to another CTA, 8 after the last: none is accessed before it runs or after it has left.
//
// Resources at width 64: 128 registers a thread; two warpgroups and 113 KB of shared memory a CTA, two CTAs an SM; or
// four warpgroups and 209 KB.
#ifndef JAXQR_FFI_RESIDENT_REFLECTOR_CUH_
#define JAXQR_FFI_RESIDENT_REFLECTOR_CUH_

#include "cluster_ptx.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"
#include "warp.cuh"
#include "wgmma.cuh"

namespace jaxqr::resident {

constexpr int kGroupThreads = 128;       // of a warpgroup
constexpr int kStrip = 64;               // columns of C at a time: the rows of a warpgroup's products
constexpr int kTileRows = 64;            // columns of the products of step 4
constexpr int kTiles = 2;                // a warpgroup
constexpr int kMaxCtas = 8;              // of a cluster, on every device that has clusters
constexpr float kWeightScale = 0x1p13f;  // brings scaled weights (at most 2) to the upper part of fp16's range
// Columns with scales outside 2^±kModerate are updated in scaled units.
constexpr int kModerate = 90;

constexpr int ctas_an_sm(int groups) { return 4 / groups; }

struct Arguments {
  float* h;  // this and src: at the first row and the panel's first column
  const float* src;
  const __half* halves;
  const float* t;
  bool transpose;  // T for Wᵀ·T, otherwise Tᵀ
  float* scales;
  bool make_scales;
  float column_scale;
  int64_t matrix_stride, row_stride;
  int rows, width, pitch;
  int first, columns;  // those to update, counted from the panel's first one: even, like row_stride
  int ctas;            // of a cluster
  int clusters;        // a matrix: they take strips in turn
};

template <int kWidth, int kGroups>
struct __align__(1024) Shared {
  // Halves: high parts, then low parts, each a swizzled operand.
  __half v[kGroups][kTiles][2][kTileRows][kWidth];
  __half t[2][kWidth][kWidth];
  __half weights[2][kStrip][kWidth];        // of Wᵀ, then of Wᵀ·T
  float sums[kGroups - 1][kWidth][kStrip];  // parts of W (see sum_place)
  float unit[kStrip];                       // what one of the last product counts in a scaled column
  unsigned magnitude[kStrip];               // largest magnitudes of C's columns, as bits, which order like the values
  unsigned t_magnitude;
  float t_unit;  // what one of T's halves times two of V's counts
  // The matrix's element in the first row behind the last column to update, and that column's scale.
  const float* src;
  float* h;
  float* scales;
};

// Where column `column` of a row of W lies: neighbouring pairs of rows start in different banks.
__device__ __forceinline__ int sum_place(int row, int column) { return column ^ row / 2 % 4 * 8; }

// Two elements as halves: the high part that `split` gives.
__device__ __forceinline__ uint32_t high_parts(float x, float y) {
  const __half2 parts = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&parts);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// acc = a·b or a·bᵀ at float32 grade: operands of kWidth / 16 steps in shared memory, low parts kALow and kBLow words
// behind the high ones. kAStep, kBStep: words from one step to the next. kLows: with the products of two low parts.
template <int kWidth, bool kTransposed, bool kLows, int kAStep, int kALow, int kBStep, int kBLow, int kCount>
__device__ __forceinline__ void multiply_split(float (&acc)[kCount], uint64_t a, uint64_t b) {
  constexpr int kSteps = kWidth / 16;
  wgmma::fence();
#pragma unroll
  for (int step = 0; kLows && step < kSteps; ++step)
    wgmma::multiply_shared<kTransposed>(acc, step > 0, a + kALow + step * kAStep, b + kBLow + step * kBStep);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    wgmma::multiply_shared<kTransposed>(acc, kLows || step > 0, a + kALow + step * kAStep, b + step * kBStep);
    wgmma::multiply_shared<kTransposed>(acc, true, a + step * kAStep, b + kBLow + step * kBStep);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma::multiply_shared<kTransposed>(acc, true, a + step * kAStep, b + step * kBStep);
  wgmma::commit();
  wgmma::wait(acc);
}

template <int kWidth, int kGroups>
__global__ void __launch_bounds__(kGroups* kGroupThreads, ctas_an_sm(kGroups))
    resident_reflector_kernel(const __grid_constant__ Arguments arguments) {
  constexpr int kThreads = kGroups * kGroupThreads, kRowBytes = 2 * kWidth, kWords = kRowBytes / 16;
  constexpr int kQuadsOfRows = kTileRows / 8;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  Shared<kWidth, kGroups>& shared = *reinterpret_cast<Shared<kWidth, kGroups>*>(shared_memory);

  const int ctas = arguments.ctas, cluster = blockIdx.x / ctas;
  const int64_t matrix = cluster / arguments.clusters;
  const int tile_step = ctas * kGroups * kTileRows, strip_step = arguments.clusters * kStrip;

  // Registers are short: what follows from the thread's index, and addresses, are computed where they are needed.
  const auto thread = [] { return ptx::recomputed(threadIdx.x); };
  const auto group = [&] { return static_cast<int>(thread() / kGroupThreads); };
  const auto lane_part = [&] { return static_cast<int>(thread() % 4); };
  const auto warp_column = [&] { return static_cast<int>(thread() % kGroupThreads / 32 * 16); };
  const auto row_group = [&] { return static_cast<int>(thread() % 32 / 4); };
  // Where this thread's columns are in the product: this row and 8 below.
  const auto product_row = [&] { return warp_column() + row_group(); };
  // Rows from the first one of the warpgroup's tile i to the last one of all.
  const int first_tile_rows = arguments.rows - (ptx::cluster_rank() * kGroups + group()) * kTileRows;
  const auto rows_left = [&](int i) { return first_tile_rows - i * tile_step; };
  // Columns from this thread's first one of a strip to the last one of all.
  const auto columns_left = [&](int strip) { return arguments.columns - strip - warp_column() - 2 * row_group(); };

  float2 c[kTiles][2 * kQuadsOfRows];
  // Calls use(element pair, its place in memory, whether that is in the matrix) for this thread's part of tile i of a
  // strip; `end` as in Shared.
  const auto for_each_pair = [&](int i, int strip, auto* const* end, auto use) {
    const int rows = rows_left(i) - 2 * lane_part(), columns = columns_left(strip);
    auto* place = ptx::load_shared_again(end) + (arguments.rows - rows) * arguments.row_stride - columns;
#pragma unroll
    for (int r = 0; r < 2 * kQuadsOfRows; ++r) {
      use(c[i][r], place, r / 2 * 8 + r % 2 < rows && columns > 0);
      place += (r % 2 == 0 ? 1 : 7) * arguments.row_stride;
    }
  };
  const auto load_tile = [&](int i, int strip) {
    for_each_pair(i, strip, &shared.src, [](float2& pair, const float* place, bool valid) {
      pair = valid ? __ldcs(reinterpret_cast<const float2*>(place)) : float2{};
    });
  };
  float2 scale;  // of this thread's columns
  const auto load_scales = [&](int strip) {
    const int columns = columns_left(strip);
    scale = columns > 0 ? *reinterpret_cast<const float2*>(shared.scales - columns) : float2{1.0f, 1.0f};
  };

  // V's tiles of this warpgroup, zeros where V has no rows or columns.
  const int width = arguments.width, pitch = arguments.pitch;
  {
    const int word = threadIdx.x % kWords, part = threadIdx.x / kWords % 2,
              tile_row = threadIdx.x % kGroupThreads / (2 * kWords);
    constexpr int kRowStep = kGroupThreads / (2 * kWords);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int row = arguments.rows - rows_left(i) + tile_row;
      const __half* const halves = arguments.halves + ((matrix * arguments.rows + row) * 2 + part) * pitch + word * 8;
#pragma unroll
      for (int j = 0; j < kTileRows; j += kRowStep) {
        ptx::copy_async_16(
            &shared.v[group()][i][part][tile_row + j][8 * wgmma::swizzled_word<kWords>(tile_row + j, word)],
            halves + j * 2 * pitch, row + j < arguments.rows && word * 8 < pitch);
      }
    }
    ptx::copy_async_commit();
  }
  // T or Tᵀ, scaled by a power of two; read twice, as registers are short.
  {
    const float* const t = arguments.t + matrix * width * width;
    const auto element = [&](int i, int j) { return i < width && j < width ? t[i * width + j] : 0.0f; };
    if (threadIdx.x < kStrip) shared.magnitude[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
      shared.t_magnitude = 0;
      const int64_t end = arguments.first + arguments.columns;
      shared.src = arguments.src + matrix * arguments.matrix_stride + end;
      shared.h = arguments.h + matrix * arguments.matrix_stride + end;
      shared.scales = arguments.scales + matrix * arguments.row_stride + end;
    }
    float magnitude = 0.0f;
#pragma unroll 4
    for (int index = threadIdx.x; index < kWidth * kWidth; index += kThreads)
      magnitude = fmaxf(magnitude, fabsf(element(index / kWidth, index % kWidth)));
    magnitude = group_max<32>(magnitude);
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicMax(&shared.t_magnitude, __float_as_uint(magnitude));
    __syncthreads();
    const float scale = product_of_scales(power_of_two_scale(__uint_as_float(shared.t_magnitude)), kWeightScale);
    if (threadIdx.x == 0) shared.t_unit = reciprocal_of_scale(scale) * (1.0f / (kReflectorScale * kReflectorScale));
#pragma unroll 4
    for (int index = threadIdx.x; index < kWidth * kWidth; index += kThreads) {
      const int i = index / kWidth, j = index % kWidth;
      const int row = arguments.transpose ? i : j, column = arguments.transpose ? j : i;
      const float value = element(i, j) * scale;
      const __half high = __float2half_rn(value);
      __half* const of_high = &shared.t[0][row][8 * wgmma::swizzled_word<kWords>(row, column / 8) + column % 8];
      of_high[0] = high;
      of_high[kWidth * kWidth] = __float2half_rn(value - __half2float(high));
    }
  }
  int strip = cluster % arguments.clusters * kStrip;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) load_tile(i, strip);
  if (!arguments.make_scales) load_scales(strip);
  ptx::copy_async_wait<0>();
  wgmma::publish_operand();
  __syncthreads();

  const auto meet = [&] {
    if (ctas > 1) {
      ptx::cluster_arrive();
      ptx::cluster_wait();
    } else {
      __syncthreads();
    }
  };
  constexpr int kTileWords = kTileRows * kWords;  // of one part of V or W
  const auto v_tile = [&](int i) { return wgmma::descriptor<kRowBytes>(shared.v[group()][i]); };
  const uint64_t weights = wgmma::descriptor<kRowBytes>(shared.weights);
  for (; strip < arguments.columns; strip += strip_step) {
    if (arguments.make_scales) {
      float2 magnitude = {};
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int r = 0; r < 2 * kQuadsOfRows; ++r)
          magnitude = {fmaxf(magnitude.x, fabsf(c[i][r].x)), fmaxf(magnitude.y, fabsf(c[i][r].y))};
      }
      magnitude = {group_max<4>(magnitude.x), group_max<4>(magnitude.y)};
      unsigned* const largest = &shared.magnitude[product_row()];
      if (lane_part() == 0) {
        atomicMax(largest, __float_as_uint(magnitude.x));
        atomicMax(largest + 8, __float_as_uint(magnitude.y));
      }
      meet();
      magnitude = {__uint_as_float(largest[0]), __uint_as_float(largest[8])};
      for (int other = 0; ctas > 1 && other < ctas; ++other) {
        const uint32_t mapped = ptx::map_to_rank(ptx::shared_address(largest), other);
        magnitude = {fmaxf(magnitude.x, ptx::load_float_from_cluster(mapped)),
                     fmaxf(magnitude.y, ptx::load_float_from_cluster(mapped + 8 * sizeof *largest))};
      }
      scale = {product_of_scales(power_of_two_scale(magnitude.x), arguments.column_scale),
               product_of_scales(power_of_two_scale(magnitude.y), arguments.column_scale)};
      if (rows_left(0) == arguments.rows && lane_part() == 0) {
        const int columns = columns_left(strip);
        if (columns > 0) *reinterpret_cast<float2*>(shared.scales - columns) = scale;
      }
    }

    // Wᵀ = Cᵀ·V, products with a low part first.
    float w[kWidth / 2] = {};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int step = 0; step < kTileRows / 16; ++step) {
        if (rows_left(i) > 16 * step) {
          const float2* const rows = &c[i][4 * step];
          const SplitQuad x =
              split({rows[0].x * scale.x, rows[1].x * scale.x, rows[2].x * scale.x, rows[3].x * scale.x});
          const SplitQuad y =
              split({rows[0].y * scale.y, rows[1].y * scale.y, rows[2].y * scale.y, rows[3].y * scale.y});
          const uint32_t high[4] = {x.high.x, y.high.x, x.high.y, y.high.y};
          const uint32_t low[4] = {x.low.x, y.low.x, x.low.y, y.low.y};
          const uint64_t v = v_tile(i) + 16 * step * kWords;
          wgmma::fence();
          wgmma::multiply(w, low, v);
          wgmma::multiply(w, high, v + kTileWords);
          wgmma::commit();
          wgmma::wait(w);
        }
      }
    }
    scale = {ptx::recomputed(scale.x), ptx::recomputed(scale.y)};  // the high parts are made again, not kept
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int step = 0; step < kTileRows / 16; step += 2) {
        if (rows_left(i) > 16 * step) {
          uint32_t high[2][4];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float2* const rows = &c[i][4 * (step + j)];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
              high[j][2 * k] = high_parts(rows[2 * k].x * scale.x, rows[2 * k + 1].x * scale.x);
              high[j][2 * k + 1] = high_parts(rows[2 * k].y * scale.y, rows[2 * k + 1].y * scale.y);
            }
          }
          const uint64_t v = v_tile(i) + 16 * step * kWords;
          wgmma::fence();
          wgmma::multiply(w, high[0], v);
          wgmma::multiply(w, high[1], v + 16 * kWords);
          wgmma::commit();
          wgmma::wait(w);
        }
      }
    }

    // The sum of the parts. A thread's rows of W all have the same sum_place.
    const auto for_each_sum = [&](float (*sums)[kStrip], auto use) {
      const int row = 2 * lane_part(), column = sum_place(row, product_row());
      float* const of_column[2] = {&sums[row][column], &sums[row][column ^ 8]};
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) use(w[i], of_column[i % 4 / 2][(i / 4 * 8 + i % 2) * kStrip]);
    };
    if (group() > 0) for_each_sum(shared.sums[group() - 1], [](float part, float& place) { place = part; });
    __syncthreads();
    if (group() == 0) {
#pragma unroll
      for (int other = 0; other < kGroups - 1; ++other)
        for_each_sum(shared.sums[other], [](float& sum, float part) { sum += part; });
    }
    if constexpr (kGroups > 2) {
      if (ctas > 1) {
        if (group() == 0) for_each_sum(shared.sums[0], [](float sum, float& place) { place = sum; });
#pragma unroll
        for (float& x : w) x = 0.0f;  // not needed any more, which the compiler does not see: frees registers
        meet();
        for (int index = threadIdx.x * 4; index < kWidth * kStrip; index += kThreads * 4) {
          float4 sum = {};
          for (int other = 0; other < ctas; ++other) {
            const float4 part =
                ptx::load_from_cluster(ptx::map_to_rank(ptx::shared_address(shared.sums[0][0] + index), other));
            sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
          }
          *reinterpret_cast<float4*>(shared.sums[1][0] + index) = sum;
        }
        ptx::cluster_arrive();  // this CTA has read the others' parts
        __syncthreads();
        if (group() == 0) for_each_sum(shared.sums[1], [](float& sum, float whole) { sum = whole; });
      }
    }

    // All have read it; it is next needed after a barrier.
    if (threadIdx.x < kStrip) shared.magnitude[threadIdx.x] = 0;

    // Wᵀ ← Wᵀ·T by warpgroup 0, a row's elements by four lanes.
    if (group() == 0) {
      // Rows become pairs of halves. Returns what one of them counts.
      const auto split_rows = [&] {
        float2 magnitude = {};
#pragma unroll
        for (int i = 0; i < kWidth / 2; i += 4) {
          magnitude.x = fmaxf(magnitude.x, fmaxf(fabsf(w[i]), fabsf(w[i + 1])));
          magnitude.y = fmaxf(magnitude.y, fmaxf(fabsf(w[i + 2]), fabsf(w[i + 3])));
        }
        // No overflow: halves' products, of which these are sums, are at least 2^-48.
        const float2 scale = {power_of_two_scale(group_max<4>(magnitude.x)) * kWeightScale,
                              power_of_two_scale(group_max<4>(magnitude.y)) * kWeightScale};
        const int row = product_row();
#pragma unroll
        for (int i = 0; i < kWidth / 2; i += 4) {
          const SplitQuad parts = split({w[i] * scale.x, w[i + 1] * scale.x, w[i + 2] * scale.y, w[i + 3] * scale.y});
          const int place = 8 * wgmma::swizzled_word<kWords>(row, i / 4) + 2 * lane_part();
          *reinterpret_cast<uint32_t*>(&shared.weights[0][row][place]) = parts.high.x;
          *reinterpret_cast<uint32_t*>(&shared.weights[0][row + 8][place]) = parts.high.y;
          *reinterpret_cast<uint32_t*>(&shared.weights[1][row][place]) = parts.low.x;
          *reinterpret_cast<uint32_t*>(&shared.weights[1][row + 8][place]) = parts.low.y;
        }
        wgmma::publish_operand();
        return float2{reciprocal_of_scale(scale.x), reciprocal_of_scale(scale.y)};
      };
      const float2 unit = split_rows();
      if (lane_part() == 0) {
        const int row = product_row();
        shared.unit[row] = unit.x * shared.t_unit;
        shared.unit[row + 8] = unit.y * shared.t_unit;
      }
      ptx::barrier(1, kGroupThreads);
      multiply_split<kWidth, false, true, 2, kTileWords, 16 * kWords, kWidth * kWords>(
          w, weights, wgmma::descriptor<kRowBytes>(shared.t));
      ptx::barrier(1, kGroupThreads);
      const float2 product_unit = split_rows();
      if (lane_part() == 0) {
        const int row = product_row();
        shared.unit[row] *= product_unit.x;
        shared.unit[row + 8] *= product_unit.y;
      }
    }
    __syncthreads();

    // Cᵀ ← Cᵀ - Wᵀ·Vᵀ. With a scale that is far from 1, the column's elements are updated in scaled units, in which
    // nothing overflows or is lost.
    const auto is_moderate = [](float scale) { return scale > exp2f(-kModerate) && scale < exp2f(kModerate); };
    const bool moderate = __all_sync(kFullWarp, is_moderate(scale.x) && is_moderate(scale.y));
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (rows_left(i) > 0) {
        float product[4 * kQuadsOfRows];
        multiply_split<kWidth, true, false, 2, kTileWords, 2, kTileWords>(product, weights, v_tile(i));
        const int row = product_row();
        const float2 unit = {shared.unit[row], shared.unit[row + 8]};
        const float2 inverse = {reciprocal_of_scale(scale.x), reciprocal_of_scale(scale.y)};
        if (moderate) {
          const float2 factor = {unit.x * inverse.x, unit.y * inverse.y};
#pragma unroll
          for (int r = 0; r < 2 * kQuadsOfRows; ++r) {
            c[i][r].x = fmaf(-product[r / 2 * 4 + r % 2], factor.x, c[i][r].x);
            c[i][r].y = fmaf(-product[r / 2 * 4 + r % 2 + 2], factor.y, c[i][r].y);
          }
        } else {
#pragma unroll
          for (int r = 0; r < 2 * kQuadsOfRows; ++r) {
            c[i][r].x = fmaf(-product[r / 2 * 4 + r % 2], unit.x, c[i][r].x * scale.x) * inverse.x;
            c[i][r].y = fmaf(-product[r / 2 * 4 + r % 2 + 2], unit.y, c[i][r].y * scale.y) * inverse.y;
          }
        }
        for_each_pair(i, strip, &shared.h, [](float2 pair, float* place, bool valid) {
          if (valid) __stcs(reinterpret_cast<float2*>(place), pair);
        });
      }
      // The same rows of the next strip.
      if (strip + strip_step < arguments.columns) load_tile(i, strip + strip_step);
    }
    if (!arguments.make_scales) load_scales(strip + strip_step);
    if (ctas > 1) ptx::cluster_wait();  // the others have read this CTA's part
  }
}

#else

// Takes no CTA of the size that a launch asks for: so the host knows that the device has no such kernel.
template <int kWidth, int kGroups>
__global__ void __launch_bounds__(32) resident_reflector_kernel(const __grid_constant__ Arguments) {}

#endif

}  // namespace jaxqr::resident

#endif  // JAXQR_FFI_RESIDENT_REFLECTOR_CUH_
