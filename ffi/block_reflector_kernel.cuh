// Fused block-reflector update C ← C - V·Tᵀ·(Vᵀ·C), or with T for Tᵀ, in place on strided sub-blocks: one CTA a strip
// of kStrip columns of one matrix, or where strips are few a cluster of CTAs that share its rows.
//
//   1. Each column of the strip has an exact power-of-two scale, read or made on the way: the warps that share rows
//      begin with the scale that the column's first elements there ask for. Where one too large for it follows they
//      lower it, and with it their part of the column's sums.
//   2. W = Vᵀ·C: the scaled C is split into pairs of halves (mma.cuh) in registers, where a thread's part of a float4
//      of C is the fragment that the product takes. A pair of warps takes 16 rows of a tile of kTileRows, so that W is
//      the sum of four parts. Each tile's product leaves the tensor cores' accumulators, which truncate, to be added
//      with proper rounding; every kTilesASum tiles so are the parts, as long sums of one sign would be rounded one
//      way.
//      The CTAs of a cluster then add their sums, in the order of their ranks.
//   3. W ← Tᵀ·W or T·W in float32; its columns are scaled by powers of two of their own and split.
//   4. C ← C - V·W, tile by tile, the last one first: C is read and written in the fragments of the product.
//
// V comes as pairs of halves (reflector_halves.h) and is streamed through kStages tiles of shared memory by
// asynchronous copies. C is read from memory once and, as far as the L2 cache holds the strips in work, found there by
// step 4, which therefore starts with what step 2 read last. Step 4 keeps the largest magnitudes of what it writes
// where the scales are to be made from them, for the next update. What is known of C, as the identity's, is not in
// memory: the CTAs write it there first.
//
// On Hopper block_reflector_bulk_kernel.cuh does the same.
//
// Columns are permuted inside every 32, so that a thread's elements of the product's four tiles lie side by side in
// memory: column j of the quad of column 2·i + e of the tiles is in tile j. The quad is 4·e + i, so that neighbouring
// threads' are side by side too. Every element of C belongs to one thread of one CTA, tiles are published and retired
// by CTA barriers, and no loop's count depends on the data. Resources: 256 threads, 90 KB of shared memory at width 64.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_KERNEL_CUH_
#define JAXQR_FFI_BLOCK_REFLECTOR_KERNEL_CUH_

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "block_reflector_parts.cuh"

namespace jaxqr::update {

inline constexpr int kGroups = kThreads / 64;  // pairs of warps, which share a tile's rows
// Halves added to a row, so that eight rows of a matrix load fall into different banks.
inline constexpr int kRowPad = 8;
inline constexpr int kColumnTiles = 4;              // tiles of 8 columns a warp
inline constexpr int kOddQuad = 16, kQuadPair = 4;  // columns from quad 0 to those of columns 1 and 2 of the tiles

// The `count` elements from `address` on, zeros after them. kAligned: 16-byte aligned, and count is at least 4 or at
// most 0. kLast: they will not be read again soon.
template <bool kAligned, bool kLast = false>
__device__ __forceinline__ float4 load_quad(const float* address, int count) {
  const auto load = [](auto place) { return kLast ? __ldcs(place) : *place; };
  if constexpr (kAligned) return count > 0 ? load(reinterpret_cast<const float4*>(address)) : float4{};
  return {count > 0 ? load(address) : 0.0f, count > 1 ? load(address + 1) : 0.0f, count > 2 ? load(address + 2) : 0.0f,
          count > 3 ? load(address + 3) : 0.0f};
}

// The same for a store of what will not be read again soon.
template <bool kAligned>
__device__ __forceinline__ void store_quad(float* address, int count, float4 value) {
  if constexpr (kAligned) {
    if (count > 0) __stcs(reinterpret_cast<float4*>(address), value);
  } else {
    if (count > 0) __stcs(address, value.x);
    if (count > 1) __stcs(address + 1, value.y);
    if (count > 2) __stcs(address + 2, value.z);
    if (count > 3) __stcs(address + 3, value.w);
  }
}

// A stream of one matrix's V: the tiles come upwards (direction 1), then downwards (-1). Every thread calls `wait` for
// each in turn.
template <int kWidth>
struct CopyStream {
  static constexpr int kStages = 3;
  static constexpr int kWords = kWidth / 8, kRowStep = kThreads / (2 * kWords), kCount = kTileRows / kRowStep;
  using Tile = __half[2][kTileRows][kWidth + kRowPad];  // high and low parts
  struct __align__(16) Stages {
    Tile v[kStages];
  };

  Stages& stages;
  const __half* next;  // this thread's first word of the next tile
  const int rows;
  int row, row_stride, direction, stage;

  // `rows` rows of two parts of `pitch` halves each.
  __device__ __forceinline__ CopyStream(Stages& stages, const __half* halves, int rows, int pitch)
      : stages(stages), rows(rows), row_stride(2 * pitch) {
    begin(halves, 0, 1);
  }
  __device__ __forceinline__ void turn(const __half* halves, int tiles) {
    finish();
    __syncthreads();
    begin(halves, tiles - 1, -1);
  }
  __device__ __forceinline__ void finish() { ptx::copy_async_wait<0>(); }

  // The tile whose turn it is, once all threads are here; the copy of another one starts.
  __device__ __forceinline__ const Tile& wait() {
    ptx::copy_async_wait<kStages - 2>();
    __syncthreads();
    start();
    return stages.v[stage];  // the oldest of kStages
  }

 private:
  __device__ __forceinline__ void begin(const __half* halves, int tile, int to) {
    row = tile * kTileRows + thread() / (2 * kWords);
    next = halves + row * int64_t{row_stride} + part() * (row_stride / 2) + column();
    direction = to;
    stage = 0;
    for (int i = 0; i < kStages - 1; ++i) start();
  }

  // Starts the copy of the next tile; zeros where V has no rows. One group of copies, also where nothing is left.
  __device__ __forceinline__ void start() {
    __half* const target = &stages.v[stage][part()][threadIdx.x / (2 * kWords)][column()];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      ptx::copy_async_16(
          target + i * kRowStep * (kWidth + kRowPad), next + i * kRowStep * row_stride,
          static_cast<unsigned>(row + i * kRowStep) < static_cast<unsigned>(rows) && column() < row_stride / 2);
    }
    ptx::copy_async_commit();
    row += direction * kTileRows;
    next += direction * kTileRows * row_stride;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  // Not kept in registers.
  __device__ static int thread() { return ptx::recomputed(static_cast<int>(threadIdx.x)); }
  __device__ static int column() { return thread() % kWords * 8; }
  __device__ static int part() { return thread() / kWords % 2; }
};

template <int kWidth>
struct Shared {
  typename CopyStream<kWidth>::Stages stages;
  union {
    struct {
      Sums<kWidth> w;
      Blocks<kWidth> t;
    };
    __half weights[2][kWidth][kStrip + kRowPad];  // Tᵀ·W or T·W: high and low parts
  };
  float scale[kStrip];                 // of C's columns: exact powers of two
  float group_scale[kGroups][kStrip];  // those in whose units a pair of warps sums
  float bound[kGroups][kStrip / 4];    // where they are being made, the largest scaled magnitude of a quad's columns
  float unit[kStrip];                  // what one of the last product counts in a scaled column
  // Largest magnitudes of W's columns, and of C's after the update, as bits, which order like the values.
  unsigned magnitude[2][kStrip];
};

// kShared: the CTAs of a cluster share the rows of a strip.
template <int kWidth, bool kAligned, bool kShared>
__global__ void __launch_bounds__(kThreads, 1)
    block_reflector_kernel(float* h, const __half* halves, const float* t, bool transpose, float* scales,
                           bool make_scales, bool remake_scales, float column_scale, const float* src,
                           int64_t matrix_stride, int64_t row_stride, int matrix_rows, int width, int pitch, int first,
                           int columns, int known, int strips) {
  // Not launched: without clusters, and where Hopper's kernel takes all cases.
  if constexpr ((kShared && !kClusters) || kHopper) return;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  Shared<kWidth>& shared = *reinterpret_cast<Shared<kWidth>*>(shared_memory);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int lane_row = lane / 4, lane_pair = lane % 4;       // of a fragment
  const int matrix_index = lane / 8, matrix_row = lane % 8;  // which row of which 8×8 matrix this lane addresses
  const int row_group = warp / 2, part = warp % 2 * 32;
  const int strip_columns = min(columns - static_cast<int>(blockIdx.x % strips) * kStrip, kStrip);
  const Tiles own = Tiles::of_cta<kShared>(matrix_rows);
  const int tiles = own.count, skipped = own.first * kTileRows,  // rows, which other CTAs have
      rows = min(matrix_rows, skipped + tiles * kTileRows) - skipped;
  // Where this CTA's part of V and of C begins; made again for the second pass, as registers are short.
  const auto own_halves = [&] {
    const int64_t matrix = ptx::recomputed(static_cast<int>(blockIdx.x)) / strips;
    return halves + (matrix * matrix_rows + skipped) * 2 * pitch;
  };
  const auto own_corner = [&] {
    const int block = ptx::recomputed(static_cast<int>(blockIdx.x));
    return block / strips * matrix_stride + skipped * row_stride + first + block % strips * kStrip;
  };
  // What is known of C is put into memory, from where it is read.
  {
    const int strip_column = static_cast<int>(blockIdx.x % strips) * kStrip, column = threadIdx.x % kStrip;
    const int whole_rows = strip_column + column < known ? rows : min(rows, known - skipped);
    float* const target = h + own_corner() + column;
    for (int row = threadIdx.x / kStrip; row < whole_rows; row += kThreads / kStrip)
      if (column < strip_columns) target[row * row_stride] = skipped + row == strip_column + column ? 1.0f : 0.0f;
    if (known > 0) __syncthreads();
  }

  CopyStream<kWidth> stream(shared.stages, own_halves(), rows, pitch);

  // This thread's column: its place in `scales`, if it has one.
  const auto scale_place = [&]() -> float* {
    const int block = ptx::recomputed(static_cast<int>(blockIdx.x)),
              column = block % strips * kStrip + static_cast<int>(threadIdx.x) % kStrip;
    return column < columns ? scales + block / strips * row_stride + first + column : nullptr;
  };
  {
    float scale = kNoScale;
    if (!make_scales) {
      const float* const place = scale_place();
      scale = place == nullptr ? 1.0f : *place;
    }
    shared.group_scale[threadIdx.x / kStrip][threadIdx.x % kStrip] = scale;
    if (threadIdx.x < kStrip) shared.scale[threadIdx.x] = scale;
    if (threadIdx.x < kGroups * kStrip / 4) (&shared.bound[0][0])[threadIdx.x] = 0.0f;
    if (threadIdx.x < 2 * kStrip) (&shared.magnitude[0][0])[threadIdx.x] = 0;
  }
  __syncthreads();

  // For step 3, in a group with the stream's next copies.
  copy_t<kWidth>(shared.t, t + ptx::recomputed(static_cast<int>(blockIdx.x)) / strips * int64_t{width} * width, width,
                 transpose);

  // W = Vᵀ·C.
  {
    const int first_row = row_group * 16 + lane_pair * 2;  // of a tile's fragment: this row and 1, 8 and 9 below
    int row = first_row;                                   // of the next tile
    const int column = part + lane_row % 2 * kOddQuad + lane_row / 2 * kQuadPair, count = strip_columns - column;
    const float* source = src + own_corner() + first_row * row_stride + column;
    float4 c[4];
    const auto load_c = [&] {
      constexpr int kBelow[4] = {0, 1, 8, 9};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        c[i] = load_quad<kAligned>(source + kBelow[i] * row_stride, row + kBelow[i] < rows ? count : 0);
      row += kTileRows;
      source += kTileRows * row_stride;
    };
    load_c();
    float w[kWidth / 16][kColumnTiles][4] = {};
    // W's columns of this thread are two quads, W's elements 0 and 2 in the first and 1 and 3 in the second.
    const auto w_quad = [&](int e) { return part + e * kOddQuad + lane_pair * kQuadPair; };
    // For this warp's columns and rows, in tiles whose elements are too large for the scales, or the first ones.
    const auto lower_scales = [&]() {
      float* const place = &shared.group_scale[row_group][column];
      float* const bound = &shared.bound[row_group][column / 4];
      const float4 scale = ptx::load_shared_again(place);
      float largest[kColumnTiles], scaled = 0.0f;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        largest[j] = fmaxf(fmaxf(fabsf(element(c[0], j)), fabsf(element(c[1], j))),
                           fmaxf(fabsf(element(c[2], j)), fabsf(element(c[3], j))));
        scaled = fmaxf(scaled, largest[j] * element(scale, j));
      }
      if (!__any_sync(kFullWarp, scaled > *bound)) return;
      float lowered[kColumnTiles], ratio[kColumnTiles];
      bool all = true;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const float magnitude = fmaxf(largest[j], __shfl_xor_sync(kFullWarp, largest[j], 1));
        const float most = fmaxf(magnitude, __shfl_xor_sync(kFullWarp, magnitude, 2));
        lowered[j] = fminf(element(scale, j), scale_for(most, column_scale));
        ratio[j] = ratio_of_scales(lowered[j], element(scale, j));
        all = all && (lowered[j] < kNoScale || (!kAligned && j >= count));
      }
      __syncwarp();  // all have read the scales
      if (lane_pair == 0) {
        *reinterpret_cast<float4*>(place) = {lowered[0], lowered[1], lowered[2], lowered[3]};
        *bound = all ? 2.0f * column_scale : 0.0f;
      }
      __syncwarp();
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          const float factor = __shfl_sync(kFullWarp, ratio[j], 8 * lane_pair + 4 * e);
#pragma unroll
          for (int i = 0; i < kWidth / 16; ++i) {
            w[i][j][e] *= factor;
            w[i][j][e + 2] *= factor;
          }
        }
      }
    };
    // Brings what the groups have summed to the lowest of their scales.
    const auto align_scales = [&](bool has_sums) {
      const auto lowest = [&](int quad) {
        float4 x = *reinterpret_cast<const float4*>(&shared.group_scale[0][quad]);
#pragma unroll
        for (int group = 1; group < kGroups; ++group)
          x = smaller(x, *reinterpret_cast<const float4*>(&shared.group_scale[group][quad]));
        return x;
      };
      __syncthreads();
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float4 to = lowest(w_quad(e)),
                     from = *reinterpret_cast<const float4*>(&shared.group_scale[row_group][w_quad(e)]);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          const float factor = ratio_of_scales(element(to, j), element(from, j));
#pragma unroll
          for (int i = 0; i < kWidth / 16; ++i) {
            w[i][j][e] *= factor;
            w[i][j][e + 2] *= factor;
          }
        }
      }
      rescale_sums<kWidth>(shared.w, shared.scale, has_sums, lowest);
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const auto& v = stream.wait();
      if (make_scales) lower_scales();
      const float4 scale = ptx::load_shared_again(&shared.group_scale[row_group][column]);
      uint32_t c_high[kColumnTiles][2], c_low[kColumnTiles][2];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const float s = element(scale, j);
        const SplitQuad parts =
            split({element(c[0], j) * s, element(c[1], j) * s, element(c[2], j) * s, element(c[3], j) * s});
        c_high[j][0] = parts.high.x;
        c_high[j][1] = parts.high.y;
        c_low[j][0] = parts.low.x;
        c_low[j][1] = parts.low.y;
      }
      if (tile + 1 < tiles) load_c();
#pragma unroll
      for (int i = 0; i < kWidth / 16; ++i) {
        uint32_t v_high[4], v_low[4];
        const int row = row_group * 16 + matrix_index / 2 * 8 + matrix_row, column = 16 * i + matrix_index % 2 * 8;
        ptx::load_matrices_transposed(v_high, &v[0][row][column]);
        ptx::load_matrices_transposed(v_low, &v[1][row][column]);
        float product[kColumnTiles][4] = {};
        mma_split(product, v_high, v_low, c_high, c_low);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
          for (int q = 0; q < 4; ++q) w[i][j][q] += product[j][q];
        }
      }
      if (tile + 1 == tiles || (tile + 1) % kTilesASum == 0) {
        // The groups take turns at each 16 rows of W.
        if (make_scales) align_scales(tile >= kTilesASum);
#pragma unroll
        for (int turn = 0; turn < kGroups; ++turn) {
#pragma unroll
          for (int i = 0; i < kWidth / 16; ++i) {
            if ((i + turn) % kGroups == row_group) {
              const bool start = turn == 0 && tile < kTilesASum;
#pragma unroll
              for (int q = 0; q < 4; ++q) {
                float4* const place =
                    reinterpret_cast<float4*>(&shared.w[16 * i + q / 2 * 8 + lane_row][w_quad(q % 2)]);
                const float4 sum = start ? float4{} : *place;
                *place = {sum.x + w[i][0][q], sum.y + w[i][1][q], sum.z + w[i][2][q], sum.w + w[i][3][q]};
                w[i][0][q] = w[i][1][q] = w[i][2][q] = w[i][3][q] = 0.0f;
              }
            }
          }
          __syncthreads();
        }
      }
    }
  }

  stream.turn(own_halves(), tiles);

  if constexpr (kShared) sum_over_cluster<kWidth>(shared.w, shared.scale, make_scales);
  if (make_scales && threadIdx.x < kStrip) {
    float& scale = shared.scale[threadIdx.x];
    if (scale == kNoScale) scale = 1.0f;  // of zeros
  }

  make_weights<kWidth>(shared.w, shared.t, transpose, shared.magnitude[0], shared.unit,
                       [&](int row, int column, const SplitQuad& parts) {
                         const int of_part = column % 32,
                                   place = column / 32 * 32 + of_part % 4 * 8 + of_part % 16 / 4 * 2 + of_part / 16;
                         const auto put = [&](int part, uint2 values) {
                           const __half2 pairs[2] = {*reinterpret_cast<const __half2*>(&values.x),
                                                     *reinterpret_cast<const __half2*>(&values.y)};
                           for (int i = 0; i < 4; ++i)
                             shared.weights[part][row + i][place] = i % 2 ? pairs[i / 2].y : pairs[i / 2].x;
                         };
                         put(0, parts.high);
                         put(1, parts.low);
                       });
  bool moderate = true;
  if (threadIdx.x < kStrip) {
    const float scale = shared.scale[threadIdx.x];
    moderate = scale > exp2f(-kModerate) && scale < exp2f(kModerate);
  }
  moderate = __syncthreads_and(moderate);

  // C ← C - V·W. The high parts of W's fragments stay in registers, the low ones are read for every tile.
  constexpr int kSteps = kWidth / 16;
  const auto load_weights = [&](uint32_t (&fragments)[kColumnTiles][2], int high_or_low, int step) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      uint32_t two[4];
      ptx::load_matrices_transposed(two, &shared.weights[high_or_low][16 * step + matrix_index % 2 * 8 + matrix_row]
                                                        [part + (j + matrix_index / 2) * 8]);
      fragments[j][0] = two[0];
      fragments[j][1] = two[1];
      fragments[j + 1][0] = two[2];
      fragments[j + 1][1] = two[3];
    }
  };
  uint32_t w_high[kSteps][kColumnTiles][2];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load_weights(w_high[step], 0, step);
  const int column = part + lane_pair * kQuadPair;
  float factor[8];  // what one of the product counts in each of this thread's columns
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int place = column + i / 4 * kOddQuad + i % 4;
    factor[i] = shared.unit[place] * reciprocal_of_scale(shared.scale[place]);
  }
  const int count = strip_columns - column;
  int row = (tiles - 1) * kTileRows + row_group * 16 + lane_row;
  const int64_t corner = own_corner();
  const float* source = src + corner + row * row_stride + column;
  float* target = h + corner + row * row_stride + column;
  const auto update = [&](auto is_moderate, auto keeps_largest) {
    // Largest magnitudes of this thread's columns, two in a register: as floats they would be spilled.
    uint32_t largest[4] = {};
    float4 c[4];  // of the next tile: this row and the one 8 below, quads 16 columns apart
    const auto load_c = [&](int row) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        c[q] = load_quad<kAligned, true>(source + q / 2 * 8 * row_stride + q % 2 * 16,
                                         row + q / 2 * 8 < rows ? count - q % 2 * 16 : 0);
      }
      source -= kTileRows * row_stride;
    };
    load_c(row);
    for (int tile = tiles - 1; tile >= 0; --tile) {
      const auto& v = stream.wait();
      float4 old[4] = {c[0], c[1], c[2], c[3]};
      if (tile > 0) load_c(row - kTileRows);
      float product[kColumnTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t v_high[4], v_low[4], w_low[kColumnTiles][2];
        const int v_row = row_group * 16 + matrix_index % 2 * 8 + matrix_row,
                  v_column = 16 * step + matrix_index / 2 * 8;
        ptx::load_matrices(v_high, &v[0][v_row][v_column]);
        ptx::load_matrices(v_low, &v[1][v_row][v_column]);
        load_weights(w_low, 1, step);
        mma_split(product, v_high, v_low, w_high[step], w_low);
      }
      float updated[4][4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        float (&x)[4] = updated[q];
        x[0] = old[q].x, x[1] = old[q].y, x[2] = old[q].z, x[3] = old[q].w;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if constexpr (decltype(is_moderate)::value) {
            x[j] = fmaf(-product[j][q], factor[q % 2 * 4 + j], x[j]);
          } else {
            const int place = column + q % 2 * kOddQuad + j;
            const float scale = shared.scale[place];
            x[j] = fmaf(-product[j][q], shared.unit[place], x[j] * scale) * reciprocal_of_scale(scale);
          }
        }
        if (row + q / 2 * 8 < rows) {
          store_quad<kAligned>(target + q / 2 * 8 * row_stride + q % 2 * 16, count - q % 2 * 16,
                               {x[0], x[1], x[2], x[3]});
        }
      }
      if constexpr (decltype(keeps_largest)::value) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto magnitude = [&](int j) {
            const float x = fmaxf(fabsf(updated[i / 2][j]), fabsf(updated[i / 2 + 2][j]));
            // Half a register ends at 2^-133, which a column that is not zero may be below where it began near there.
            return !decltype(is_moderate)::value && x > 0.0f && x < 0x1p-133f ? 0x1p-133f : x;
          };
          largest[i] =
              ptx::max_of_pairs(largest[i], ptx::truncated_pair(magnitude(i % 2 * 2), magnitude(i % 2 * 2 + 1)));
        }
      }
      row -= kTileRows;
      target -= kTileRows * row_stride;
    }
    if constexpr (decltype(keeps_largest)::value) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2)
          largest[i] = ptx::max_of_pairs(largest[i], __shfl_xor_sync(kFullWarp, largest[i], mask));
        if (lane_row == 0) {
          unsigned* const place = &shared.magnitude[1][column + i / 2 * kOddQuad + i % 2 * 2];
          atomicMax(place, largest[i] << 16);
          atomicMax(place + 1, largest[i] & 0xffff0000u);
        }
      }
    }
  };
  // With a scale that is far from 1, the column's elements are updated in scaled units, in which nothing overflows or
  // is lost.
  if (!moderate) {
    update(std::false_type{}, std::true_type{});
  } else if (remake_scales) {
    update(std::true_type{}, std::true_type{});
  } else {
    update(std::true_type{}, std::false_type{});
  }
  stream.finish();

  if (remake_scales) {
    if constexpr (kShared)
      cluster_barrier();
    else
      __syncthreads();
    if (threadIdx.x < kStrip && blockIdx.y == 0)
      publish_scale<kShared>(shared.magnitude[1], column_scale, scale_place());
    if constexpr (kShared) cluster_barrier();  // the first CTA has read what the others hold
  }
}
}  // namespace jaxqr::update

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_KERNEL_CUH_
