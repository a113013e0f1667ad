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
// memory: the CTAs write it there first, or on Hopper copies from outside the matrices bring its zeros. On Hopper,
// where a CTA has all rows of aligned columns, V and C go through shared memory, in and out by tensor copies: what
// bounds the update is the way to the first-level cache, and there fragments of C in global memory take four times as
// many turns as they fill.
//
// Columns are permuted inside every 32, so that a thread's elements of the product's four tiles lie side by side in
// memory: column j of the quad of column 2·i + e of the tiles is in tile j. The quad is 4·e + i, so that neighbouring
// threads' are side by side too, or where C is in shared memory 2·i + e. Every element of C belongs to one thread of
// one CTA; tiles are published and retired by CTA barriers, on Hopper by mbarriers and counts of the warps that have
// left them, and no loop's count depends on the data. Resources: 256 threads, at most 128 registers a thread, 91 or 103
// KB of shared memory at width 64: two CTAs on an SM where there is room for them.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <type_traits>

#include "block_reflector.h"
#include "bulk_ptx.cuh"
#include "cluster_ptx.cuh"
#include "float4.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"
#include "scales.h"
#include "warp.cuh"

namespace jaxqr {
namespace {

constexpr int kThreads = 256;
constexpr int kStrip = 64;     // columns of C a CTA: a part of 32 for each warp of a pair
constexpr int kTileRows = 64;  // rows of V and C at a time
constexpr int kTilesASum = 16;
constexpr int kGroups = kThreads / 64;  // pairs of warps, which share a tile's rows
constexpr int kPad = 8;          // halves added to a row, so that eight rows of a matrix load fall into different banks
constexpr int kColumnTiles = 4;  // tiles of 8 columns a warp
// Brings the magnitudes that a scale is made from to [16, 32): far enough above fp16's smallest numbers, and far below
// those that ask for another scale.
constexpr float kFirstScale = 0x1p4f;
// Larger than any scale: of a column that has shown no element yet.
constexpr float kNoScale = 0x1p127f;
constexpr float kWeightScale = 0x1p13f;  // brings scaled weights (at most 2) to the upper part of fp16's range
// Columns with scales outside 2^±kModerate are updated in scaled units.
constexpr int kModerate = 90;
// CTAs that share an SM's registers: two where its shared memory holds them at width 64 and the compiler needs no more
// registers than that leaves.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 9
constexpr int kResident = 2;
#else
constexpr int kResident = 1;
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kClusters = true;
#else
constexpr bool kClusters = false;
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 9
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

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

// Streams of one matrix's V, CopyStream, or of V and C: the tiles come upwards (direction 1), then downwards (-1).
// Every thread calls `wait` for each in turn.

template <int width>
struct CopyStream {
  static constexpr int kWidth = width, kStages = 3;
  static constexpr bool kBulk = false;
  static constexpr int kOddQuad = 16, kQuadPair = 4;
  struct Maps {};
  static constexpr int kWords = kWidth / 8, kRowStep = kThreads / (2 * kWords), kCount = kTileRows / kRowStep;
  using Tile = __half[2][kTileRows][kWidth + kPad];  // high and low parts
  struct __align__(16) Stages {
    Tile v[kStages];
  };

  Stages& stages;
  const __half* next;  // this thread's first word of the next tile
  const int rows;
  int row, row_stride, direction, stage;

  // `rows` rows of two parts of `pitch` halves each.
  __device__ __forceinline__ CopyStream(Stages& stages, const __half* halves, int rows, int pitch, int)
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
  template <int>
  __device__ __forceinline__ const Tile& wait(int) {
    ptx::copy_async_wait<kStages - 2>();
    __syncthreads();
    start();
    return stages.v[stage];  // the oldest of kStages
  }
  static constexpr int kLowParts = kTileRows * (kWidth + kPad);  // from high ones
  __device__ static const __half* at(const Tile& v, int row, int column) { return &v[0][row][column]; }

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
          target + i * kRowStep * (kWidth + kPad), next + i * kRowStep * row_stride,
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

// Both V and C by copies of whole tiles, which bring zeros from outside the matrices. Warps leave a tile when they have
// done with V's and have the fragments of C's next one in registers, or C's back in their place; the last one to leave
// starts the copies into and out of what all have left, and none waits for the others.
//
// Tiles are swizzled: a row is 128 bytes (or 64, of V at width 32), in which 16-byte word i of row r is at i ^ r % 8
// (or i ^ r / 2 % 4), so that no 8 words that are loaded together meet in a bank.
//
// A stage's first fill belongs to the phase of parity 0, and tile i to that of parity i / kStages, modulo 2, also on
// the way back: it is as many fills away from the last one, which counts for both ways, as it was on the way there.
template <int width>
struct BulkStream {
  static constexpr int kWidth = width, kStages = width == 64 ? 2 : 3;
  static constexpr bool kBulk = true;
  static constexpr int kOddQuad = 4, kQuadPair = 8;    // columns from quad 0 to those of columns 1 and 2 of the tiles
  using Tile = __half[2][kTileRows][kWidth];           // high and low parts
  using ColumnTile = float[2][kTileRows][kStrip / 2];  // left and right half
  struct __align__(1024) Stages {
    Tile v[kStages];
    ColumnTile c[kStages];
    uint64_t v_full[kStages], c_full[kStages];
    unsigned left[kStages];  // how many warps have left the tile
    int matrix, column;      // where the strip is
  };
  // Of V's [matrix][row][part][column], and of [matrix][row][column] of C before, from `known` on, and after.
  struct Maps {
    CUtensorMap v, source, target;
  };

  Stages& stages;
  const Maps& maps;
  const int tiles, known;  // of C's rows and columns those that are the identity's
  bool stored = false;     // whether this thread has started the copy of the last tile of C

  // Published by the next barrier of the CTA.
  __device__ __forceinline__ BulkStream(Stages& stages, const Maps& maps, int strips, int tiles, int known)
      : stages(stages), maps(maps), tiles(tiles), known(known) {
    if (threadIdx.x == kThreads - 32) {  // of a warp that has no scales to load
      for (int i = 0; i < kStages; ++i) {
        ptx::mbarrier_init(&stages.v_full[i], 1);
        ptx::mbarrier_init(&stages.c_full[i], 1);
        stages.left[i] = 0;
      }
      stages.matrix = static_cast<int>(blockIdx.x) / strips;
      stages.column = static_cast<int>(blockIdx.x) % strips * kStrip;
      ptx::order_before_copies();
      for (int tile = 0; tile < min(kStages, tiles); ++tile) {
        fill_c(tile);
        fill_v(tile);
      }
    }
  }

  // V's tile, once it is there.
  template <int>
  __device__ __forceinline__ const Tile& wait(int tile) {
    ptx::mbarrier_wait(&stages.v_full[stage_of(tile)], parity_of(tile));
    return stages.v[stage_of(tile)];
  }
  static constexpr int kLowParts = kTileRows * kWidth;  // from high ones
  // `column` is a multiple of 8. (Columns 16 apart: a single place and constants.)
  __device__ static const __half* at(const Tile& v, int row, int column) {
    const int swizzle = kWidth == 64 ? row % 8 : row / 2 % 4;
    const int place = row * kWidth + (column / 8 % 2 ^ swizzle) * 8;
    return &v[0][0][0] + (place ^ column / 16 * 16);
  }

  // C's tile, once it is there.
  __device__ __forceinline__ ColumnTile& wait_c(int tile) {
    ptx::mbarrier_wait(&stages.c_full[stage_of(tile)], parity_of(tile));
    return stages.c[stage_of(tile)];
  }
  // Whether it has ones of the identity, for which copies bring zeros.
  __device__ __forceinline__ bool has_ones(int tile) const {
    return tile * kTileRows < known && tile * kTileRows == stages.column;
  }
  // Puts the one of a row into the tile, if it is in this quad.
  __device__ __forceinline__ void put_one(float4* quad, int row, int column) const {
    if (static_cast<unsigned>(row - column) < 4 && stages.column + row < known)
      reinterpret_cast<float*>(quad)[row - column] = 1.0f;
  }
  // `column` is a multiple of 4.
  __device__ static float4* at(ColumnTile& c, unsigned row, unsigned column) {
    return reinterpret_cast<float4*>(&c[column / (kStrip / 2)][row][(column / 4 % 8 ^ row % 8) * 4]);
  }

  // On the way there, with C's next tile in registers.
  __device__ __forceinline__ void leave(int tile) {
    // Loads of C may still be on their way, and a copy would overtake them.
    ptx::order_before_copies();
    if (last_to_leave(tile)) {
      // The first tile's stage as well, which no tile before it has left.
#pragma unroll 1
      for (int next = tile == 0 ? kStages : tile + kStages + 1; next < min(tile + kStages + 2, tiles); ++next)
        fill_c(next);
      if (tile + kStages < tiles) fill_v(tile + kStages);
    }
  }
  // On the way back, with C's tile updated.
  __device__ __forceinline__ void leave_back(int tile) {
    ptx::order_before_copies();
    stored = last_to_leave(tile);
    if (stored) {
      store_c(tile);
      if (tile >= kStages) fill_v(tile - kStages);
    }
  }
  // On the way back: another tile comes into the stage from which the one above was stored.
  __device__ __forceinline__ void follow_c(int tile) {
    if (stored && tile + 1 >= kStages) {
      ptx::store_bulk_wait_read();
      fill_c(tile + 1 - kStages);
    }
  }
  __device__ __forceinline__ void finish() { ptx::store_bulk_wait_read(); }

 private:
  __device__ static int stage_of(int tile) { return static_cast<unsigned>(tile) % kStages; }
  __device__ static unsigned parity_of(int tile) { return static_cast<unsigned>(tile) / kStages % 2; }

  // For one thread of the last warp.
  __device__ __forceinline__ bool last_to_leave(int tile) {
    constexpr unsigned kLast = kThreads / 32 - 1;
    __syncwarp();
    return threadIdx.x % 32 == 0 && ptx::count_cyclic(&stages.left[stage_of(tile)], kLast) == kLast;
  }

  __device__ __forceinline__ void fill_v(int tile) {
    const int stage = stage_of(tile);
    ptx::mbarrier_arrive_expect(&stages.v_full[stage], sizeof(Tile));
    for (int part = 0; part < 2; ++part)
      ptx::copy_tensor(stages.v[stage][part], &maps.v, 0, part, tile * kTileRows, stages.matrix, &stages.v_full[stage]);
  }
  __device__ __forceinline__ void fill_c(int tile) {
    const int stage = stage_of(tile);
    ptx::mbarrier_arrive_expect(&stages.c_full[stage], sizeof(ColumnTile));
    for (int half = 0; half < 2; ++half)
      ptx::copy_tensor(stages.c[stage][half], &maps.source, stages.column + half * (kStrip / 2) - known,
                       tile * kTileRows - known, stages.matrix, &stages.c_full[stage]);
  }
  __device__ __forceinline__ void store_c(int tile) {
    for (int half = 0; half < 2; ++half)
      ptx::store_tensor(&maps.target, stages.column + half * (kStrip / 2), tile * kTileRows, stages.matrix,
                        stages.c[stage_of(tile)][half]);
    ptx::store_bulk_commit();
  }
};

template <typename Stream>
struct Shared {
  static constexpr int kWidth = Stream::kWidth, kPitch = kStrip + 4;
  typename Stream::Stages stages;
  // W and T or its transpose, then the halves of their product.
  union {
    struct {
      float w[kWidth][kPitch], t[kWidth][kPitch];
    } factors;
    __half weights[2][kWidth][kStrip + kPad];
  };
  float scale[kStrip];                 // of C's columns: exact powers of two
  float group_scale[kGroups][kStrip];  // those in whose units a pair of warps sums
  float bound[kGroups][kStrip / 4];    // where they are being made, the largest scaled magnitude of a quad's columns
  float unit[kStrip];                  // what one of the last product counts in a scaled column
  // Largest magnitudes of W's columns, and of C's after the update, as bits, which order like the values.
  unsigned magnitude[2][kStrip];
};

// What counts in units of the scale `from` counts this many times as much in those of `to`, which is not larger.
__device__ __forceinline__ float ratio_of_scales(float to, float from) { return to * reciprocal_of_scale(from); }

__device__ __forceinline__ float4 scaled(float4 x, float4 to, float4 from) {
  return {x.x * ratio_of_scales(to.x, from.x), x.y * ratio_of_scales(to.y, from.y), x.z * ratio_of_scales(to.z, from.z),
          x.w * ratio_of_scales(to.w, from.w)};
}

// kShared: the CTAs of a cluster share the rows of a strip.
template <typename Stream, bool kAligned, bool kShared>
__global__ void __launch_bounds__(kThreads, kAligned ? kResident : 1)
    block_reflector_kernel(float* h, const __half* halves, const float* t, bool transpose, float* scales,
                           bool make_scales, bool remake_scales, float column_scale, const float* src,
                           int64_t matrix_stride, int64_t row_stride, int matrix_rows, int width, int pitch, int first,
                           int columns, int known, int strips, const __grid_constant__ typename Stream::Maps maps) {
  constexpr int kWidth = Stream::kWidth;
  static_assert(!Stream::kBulk || (kAligned && !kShared), "its tensors are of whole matrices and aligned columns");
  if constexpr (kShared && !kClusters) return;
  // Not launched: where there are bulk copies they take all aligned cases of one CTA a strip.
  if constexpr (kAligned && !kShared && Stream::kBulk != kBulkCopies) return;
  static_assert(kWidth % 32 == 0 && kWidth <= kMaxBlockReflectorWidth, "the quads of W's rows cover the warps");
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  Shared<Stream>& shared = *reinterpret_cast<Shared<Stream>*>(shared_memory);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int lane_row = lane / 4, lane_pair = lane % 4;       // of a fragment
  const int matrix_index = lane / 8, matrix_row = lane % 8;  // which row of which 8×8 matrix this lane addresses
  const int row_group = warp / 2, part = warp % 2 * 32;
  const int strip_columns = min(columns - static_cast<int>(blockIdx.x % strips) * kStrip, kStrip);
  int rows = matrix_rows, tiles = (rows + kTileRows - 1) / kTileRows;
  int skipped = 0;  // rows, which other CTAs have
  if constexpr (kShared && kClusters) {
    const int share = static_cast<int>(blockIdx.y), shares = static_cast<int>(gridDim.y),
              begin = tiles * share / shares, end = tiles * (share + 1) / shares;
    skipped = begin * kTileRows;
    rows = min(rows, end * kTileRows) - skipped;
    tiles = end - begin;
  }
  // Where this CTA's part of V and of C begins; made again for the second pass, as registers are short.
  const auto own_halves = [&] {
    const int64_t matrix = ptx::recomputed(static_cast<int>(blockIdx.x)) / strips;
    return halves + (matrix * matrix_rows + skipped) * 2 * pitch;
  };
  const auto own_corner = [&] {
    const int block = ptx::recomputed(static_cast<int>(blockIdx.x));
    return block / strips * matrix_stride + skipped * row_stride + first + block % strips * kStrip;
  };
  const auto cluster_barrier = [] {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  };

  // What is known of C is only in memory where it is read from there.
  if constexpr (!Stream::kBulk) {
    const int strip_column = static_cast<int>(blockIdx.x % strips) * kStrip, column = threadIdx.x % kStrip;
    const int whole_rows = strip_column + column < known ? rows : min(rows, known - skipped);
    float* const target = h + own_corner() + column;
    for (int row = threadIdx.x / kStrip; row < whole_rows; row += kThreads / kStrip)
      if (column < strip_columns) target[row * row_stride] = skipped + row == strip_column + column ? 1.0f : 0.0f;
    if (known > 0) __syncthreads();
  }

  Stream stream = [&] {
    if constexpr (Stream::kBulk) {
      return Stream(shared.stages, maps, strips, tiles, known);
    } else {
      return Stream(shared.stages, own_halves(), rows, pitch, tiles);
    }
  }();

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

  // T, or its transpose, comes for step 3. The stream V's next group of copies has them too.
  {
    float (*const target)[Shared<Stream>::kPitch] = shared.factors.t;
    const float* const source = t + ptx::recomputed(static_cast<int>(blockIdx.x)) / strips * int64_t{width} * width;
    if (transpose && width % 4 == 0) {
      constexpr int kQuads = kWidth / 4;
      const int column = threadIdx.x % kQuads * 4;
#pragma unroll
      for (int i = 0; i < kWidth; i += kThreads / kQuads) {
        const int row = i + threadIdx.x / kQuads;
        ptx::copy_async_16(&target[row][column], source + row * width + column, row < width && column < width);
      }
    } else {
      const int column = threadIdx.x % kWidth;
#pragma unroll 4
      for (int row = threadIdx.x / kWidth; row < kWidth; row += kThreads / kWidth) {
        ptx::copy_async_4(transpose ? &target[row][column] : &target[column][row], source + row * width + column,
                          row < width && column < width);
      }
    }
    if constexpr (Stream::kBulk) ptx::copy_async_commit();
  }

  // W = Vᵀ·C.
  {
    const int first_row = row_group * 16 + lane_pair * 2;  // of a tile's fragment: this row and 1, 8 and 9 below
    int row = first_row;                                   // of the next tile
    const int column = part + lane_row % 2 * Stream::kOddQuad + lane_row / 2 * Stream::kQuadPair,
              count = strip_columns - column;
    const float* source = src + own_corner() + first_row * row_stride + column;
    float4 c[4];
    const auto load_c = [&]([[maybe_unused]] int tile) {
      constexpr int kBelow[4] = {0, 1, 8, 9};
      if constexpr (Stream::kBulk) {
        auto& staged = stream.wait_c(tile);
        if (stream.has_ones(tile)) {
          const int row = ptx::recomputed(static_cast<int>(threadIdx.x));
          if (row < kTileRows) stream.put_one(Stream::at(staged, row, row / 4 * 4), row, row / 4 * 4);
          __syncthreads();
        }
        const unsigned thread = ptx::recomputed(static_cast<int>(threadIdx.x));  // registers are short
        const unsigned part_of_thread =
            thread / 32 % 2 * 32 + thread / 4 % 2 * Stream::kOddQuad + thread % 32 / 8 * Stream::kQuadPair;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          c[i] = *Stream::at(staged, thread / 64 * 16 + thread % 4 * 2 + kBelow[i], part_of_thread);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          c[i] = load_quad<kAligned>(source + kBelow[i] * row_stride, row + kBelow[i] < rows ? count : 0);
        row += kTileRows;
        source += kTileRows * row_stride;
      }
    };
    load_c(0);
    float w[kWidth / 16][kColumnTiles][4] = {};
    // W's columns of this thread are two quads, W's elements 0 and 2 in the first and 1 and 3 in the second.
    const auto w_quad = [&](int e) { return part + e * Stream::kOddQuad + lane_pair * Stream::kQuadPair; };
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
        const float wanted =
            most > 0.0f ? product_of_scales(power_of_two_scale(most), fminf(kFirstScale, column_scale)) : kNoScale;
        lowered[j] = fminf(element(scale, j), wanted);
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
        for (int group = 1; group < kGroups; ++group) {
          const float4 y = *reinterpret_cast<const float4*>(&shared.group_scale[group][quad]);
          x = {fminf(x.x, y.x), fminf(x.y, y.y), fminf(x.z, y.z), fminf(x.w, y.w)};
        }
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
      const int quad = threadIdx.x % (kStrip / 4) * 4;
      const float4 to = lowest(quad);
      if (has_sums) {
        const float4 from = *reinterpret_cast<const float4*>(&shared.scale[quad]);
        for (int k = threadIdx.x / (kStrip / 4); k < kWidth; k += kThreads / (kStrip / 4)) {
          float4* const place = reinterpret_cast<float4*>(&shared.factors.w[k][quad]);
          *place = scaled(*place, to, from);
        }
        __syncthreads();
      }
      if (threadIdx.x < kStrip / 4) *reinterpret_cast<float4*>(&shared.scale[quad]) = to;
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const auto& v = stream.template wait<1>(tile);
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
      if (!Stream::kBulk && tile + 1 < tiles) load_c(tile + 1);
#pragma unroll
      for (int i = 0; i < kWidth / 16; ++i) {
        uint32_t v_high[4], v_low[4];
        const int row = row_group * 16 + matrix_index / 2 * 8 + matrix_row, column = 16 * i + matrix_index % 2 * 8;
        const __half* const place = Stream::at(v, row, column);
        ptx::load_matrices_transposed(v_high, place);
        ptx::load_matrices_transposed(v_low, place + Stream::kLowParts);
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
        if (Stream::kBulk && tile + 1 == tiles) ptx::copy_async_wait<0>();  // T
#pragma unroll
        for (int turn = 0; turn < kGroups; ++turn) {
#pragma unroll
          for (int i = 0; i < kWidth / 16; ++i) {
            if ((i + turn) % kGroups == row_group) {
              const bool start = turn == 0 && tile < kTilesASum;
#pragma unroll
              for (int q = 0; q < 4; ++q) {
                float4* const place =
                    reinterpret_cast<float4*>(&shared.factors.w[16 * i + q / 2 * 8 + lane_row][w_quad(q % 2)]);
                const float4 sum = start ? float4{} : *place;
                *place = {sum.x + w[i][0][q], sum.y + w[i][1][q], sum.z + w[i][2][q], sum.w + w[i][3][q]};
                w[i][0][q] = w[i][1][q] = w[i][2][q] = w[i][3][q] = 0.0f;
              }
            }
          }
          __syncthreads();
        }
      }
      if constexpr (Stream::kBulk) {
        if (tile + 1 < tiles) load_c(tile + 1);
        stream.leave(tile);
      }
    }
  }

  if constexpr (!Stream::kBulk) stream.turn(own_halves(), tiles);

  float* const w = &shared.factors.w[0][0];
  const float* const t_shared = &shared.factors.t[0][0];
  constexpr int kPitch = Shared<Stream>::kPitch;
  if constexpr (kShared && kClusters) {
    constexpr int kQuads = kWidth * kStrip / 4 / kThreads;
    const auto quad = [](int i) {
      const int index = 4 * (threadIdx.x + i * kThreads);
      return index / kStrip * kPitch + index % kStrip;
    };
    float4 sums[kQuads] = {}, lowest = {kNoScale, kNoScale, kNoScale, kNoScale};
    float* const own_scale = &shared.scale[quad(0) % kPitch];
    const auto scale_of = [&](int other) {
      return ptx::load_from_cluster(ptx::map_to_rank(ptx::shared_address(own_scale), other));
    };
    cluster_barrier();
    for (int other = 0; make_scales && other < static_cast<int>(gridDim.y); ++other) {
      const float4 x = scale_of(other);
      lowest = {fminf(lowest.x, x.x), fminf(lowest.y, x.y), fminf(lowest.z, x.z), fminf(lowest.w, x.w)};
    }
    for (int other = 0; other < static_cast<int>(gridDim.y); ++other) {
      const float4 scale = make_scales ? scale_of(other) : lowest;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        float4 part = ptx::load_from_cluster(ptx::map_to_rank(ptx::shared_address(w + quad(i)), other));
        if (make_scales) part = scaled(part, lowest, scale);
        sums[i] = {sums[i].x + part.x, sums[i].y + part.y, sums[i].z + part.z, sums[i].w + part.w};
      }
    }
    cluster_barrier();  // all have read; the last access to another CTA's memory
#pragma unroll
    for (int i = 0; i < kQuads; ++i) *reinterpret_cast<float4*>(w + quad(i)) = sums[i];
    if (make_scales && threadIdx.x < kStrip / 4) *reinterpret_cast<float4*>(own_scale) = lowest;
    __syncthreads();
  }
  if (make_scales && threadIdx.x < kStrip) {
    float& scale = shared.scale[threadIdx.x];
    if (scale == kNoScale) scale = 1.0f;  // of zeros
  }

  // W ← Tᵀ·W or T·W: a lane two columns, a warp a quad of rows and, as T's zeros are skipped, its mirror image.
  {
    constexpr int kQuads = kWidth / 4, kTurns = kQuads / 8;
    const auto quad_row = [&](int turn) { return 4 * (turn == 0 ? warp : kQuads - 1 - warp); };
    float result[kTurns][4][2] = {};
    const int column = 2 * lane;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int row = quad_row(turn), last = transpose ? row + 4 : kWidth;
#pragma unroll 1
      for (int four = transpose ? 0 : row; four < last; four += 4) {
#pragma unroll
        for (int l = four; l < four + 4; ++l) {
          const float4 t_row = *reinterpret_cast<const float4*>(t_shared + l * kPitch + row);
          const float2 w_row = *reinterpret_cast<const float2*>(w + l * kPitch + column);
          const float ts[4] = {t_row.x, t_row.y, t_row.z, t_row.w};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            result[turn][i][0] = fmaf(ts[i], w_row.x, result[turn][i][0]);
            result[turn][i][1] = fmaf(ts[i], w_row.y, result[turn][i][1]);
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float magnitude = 0.0f;
#pragma unroll
      for (int i = 0; i < 4 * kTurns; ++i) magnitude = fmaxf(magnitude, fabsf(result[i / 4][i % 4][c]));
      atomicMax(&shared.magnitude[0][column + c], __float_as_uint(magnitude));
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float scale = power_of_two_scale(__uint_as_float(shared.magnitude[0][column + c]));
      // Here and in step 4 V's scale counts.
      if (warp == 0)
        shared.unit[column + c] =
            reciprocal_of_scale(scale) * (1.0f / (kReflectorScale * kReflectorScale * kWeightScale));
      const int of_part = (column + c) % 32;
      const int tile_column = Stream::kOddQuad == 16 ? of_part % 16 / 4 * 2 + of_part / 16 : of_part / 4;
      const int place = column / 32 * 32 + of_part % 4 * 8 + tile_column;
#pragma unroll
      for (int i = 0; i < 4 * kTurns; ++i) {
        const int row = quad_row(i / 4) + i % 4;
        const float value = result[i / 4][i % 4][c] * scale * kWeightScale;
        const __half high = __float2half_rn(value);
        shared.weights[0][row][place] = high;
        shared.weights[1][row][place] = __float2half_rn(value - __half2float(high));
      }
    }
  }
  bool moderate = true;
  if (threadIdx.x < kStrip) {
    const float scale = shared.scale[threadIdx.x];
    moderate = scale > exp2f(-kModerate) && scale < exp2f(kModerate);
  }
  moderate = __syncthreads_and(moderate);

  // C ← C - V·W. The high parts of W's fragments stay in registers; the low ones do on Hopper, where C's next tile
  // needs none, and are read for every tile elsewhere.
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
  uint32_t w_high[kSteps][kColumnTiles][2], w_low[kSteps][kColumnTiles][2];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    load_weights(w_high[step], 0, step);
    if constexpr (Stream::kBulk) load_weights(w_low[step], 1, step);
  }
  const int column = part + lane_pair * Stream::kQuadPair;
  float factor[8];  // what one of the product counts in each of this thread's columns
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int place = column + i / 4 * Stream::kOddQuad + i % 4;
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
    if constexpr (!Stream::kBulk) load_c(row);
    for (int tile = tiles - 1; tile >= 0; --tile) {
      const auto& v = stream.template wait<-1>(tile);
      float4 old[4] = {c[0], c[1], c[2], c[3]};
      if (!Stream::kBulk && tile > 0) load_c(row - kTileRows);
      float product[kColumnTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t v_high[4], v_low[4];
        const int v_row = row_group * 16 + matrix_index % 2 * 8 + matrix_row,
                  v_column = 16 * step + matrix_index / 2 * 8;
        const __half* const place = Stream::at(v, v_row, v_column);
        ptx::load_matrices(v_high, place);
        ptx::load_matrices(v_low, place + Stream::kLowParts);
        if constexpr (!Stream::kBulk) load_weights(w_low[step], 1, step);
        mma_split(product, v_high, v_low, w_high[step], w_low[step]);
      }
      [[maybe_unused]] float4* staged[4];
      if constexpr (Stream::kBulk) {
        stream.follow_c(tile);
        auto& c_tile = stream.wait_c(tile);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          staged[q] = Stream::at(c_tile, row_group * 16 + lane_row + q / 2 * 8, column + q % 2 * Stream::kOddQuad);
          if (stream.has_ones(tile)) {
            const unsigned thread = ptx::recomputed(static_cast<int>(threadIdx.x));
            stream.put_one(staged[q], thread / 64 * 16 + thread % 32 / 4 + q / 2 * 8,
                           thread / 32 % 2 * 32 + thread % 4 * Stream::kQuadPair + q % 2 * Stream::kOddQuad);
          }
          old[q] = *staged[q];
        }
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
            const int place = column + q % 2 * Stream::kOddQuad + j;
            const float scale = shared.scale[place];
            x[j] = fmaf(-product[j][q], shared.unit[place], x[j] * scale) * reciprocal_of_scale(scale);
          }
        }
        if constexpr (Stream::kBulk) {
          *staged[q] = {x[0], x[1], x[2], x[3]};
        } else if (row + q / 2 * 8 < rows) {
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
      if constexpr (Stream::kBulk) stream.leave_back(tile);
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
          unsigned* const place = &shared.magnitude[1][column + i / 2 * Stream::kOddQuad + i % 2 * 2];
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
    if constexpr (kShared && kClusters)
      cluster_barrier();
    else
      __syncthreads();
    if (threadIdx.x < kStrip && blockIdx.y == 0) {
      const unsigned* const own = &shared.magnitude[1][threadIdx.x];
      float magnitude = __uint_as_float(*own);
      if constexpr (kShared && kClusters) {
        for (int other = 1; other < static_cast<int>(gridDim.y); ++other) {
          const uint32_t place = ptx::map_to_rank(ptx::shared_address(own), other);
          magnitude = fmaxf(magnitude, ptx::load_float_from_cluster(place));
        }
      }
      if (float* const place = scale_place()) *place = product_of_scales(power_of_two_scale(magnitude), column_scale);
    }
    if constexpr (kShared && kClusters) cluster_barrier();  // the first CTA has read what the others hold
  }
}

constexpr int64_t kMaxGrid = 0x7fffffff;

// Describes a row-major array to the tensor copies: sizes and boxes from the last dimension on, strides in bytes.
template <int kRank>
bool make_map(CUtensorMap* map, CUtensorMapDataType type, const void* base, const std::array<int64_t, kRank>& sizes,
              const std::array<int64_t, kRank - 1>& strides, const std::array<unsigned, kRank>& box,
              CUtensorMapSwizzle swizzle) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function) : nullptr;
  }();
  cuuint64_t map_sizes[kRank], map_strides[kRank - 1];
  cuuint32_t steps[kRank];
  std::copy(sizes.begin(), sizes.end(), map_sizes);
  std::copy(strides.begin(), strides.end(), map_strides);
  std::fill_n(steps, kRank, 1);
  return encode != nullptr && encode(map, type, kRank, const_cast<void*>(base), map_sizes, map_strides, box.data(),
                                     steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <typename Stream, bool kAligned, bool kShared>
cudaError_t launch(int64_t shares, const BlockReflectorShape& shape, float* h, const __half* halves, const float* t,
                   bool transpose, float* scales, bool make_scales, bool remake_scales, const float* src,
                   cudaStream_t stream) {
  const auto kernel = block_reflector_kernel<Stream, kAligned, kShared>;
  const int shared_bytes = sizeof(Shared<Stream>);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int64_t rows = shape.m - shape.offset, columns = shape.last - shape.first,
                strips = (columns + kStrip - 1) / kStrip;
  const int64_t stride = shape.m * shape.n, corner = shape.offset * shape.n + shape.offset, width = shape.width,
                pitch = reflector_pitch(width);
  // Where all is known, whole strips are.
  const int64_t known = shape.all_known() ? strips * kStrip : shape.known;
  const int64_t matrices = kMaxGrid / strips;  // of one launch
  for (int64_t batch = 0; batch < shape.batch; batch += matrices) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, static_cast<unsigned>(shares), 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = {static_cast<unsigned>(std::min(shape.batch - batch, matrices) * strips),
                      static_cast<unsigned>(shares)};
    config.blockDim = kThreads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = kShared ? 1 : 0;
    typename Stream::Maps maps;
    if constexpr (Stream::kBulk) {
      const auto corner = batch * stride + shape.offset * shape.n + shape.first;
      const int64_t count = std::min(shape.batch - batch, matrices);
      constexpr auto kFloat = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
      constexpr auto kHalf = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      // Where all is the identity's, boxes before an array's beginning bring zeros of any array.
      const int64_t read_from = shape.all_known() ? 0 : known;
      const bool made = make_map<3>(&maps.source, kFloat, src + corner + read_from * (shape.n + 1),
                                    {columns - read_from, rows - read_from, count}, {4 * shape.n, 4 * stride},
                                    {kStrip / 2, kTileRows, 1}, CU_TENSOR_MAP_SWIZZLE_128B) &&
                        make_map<3>(&maps.target, kFloat, h + corner, {columns, rows, count}, {4 * shape.n, 4 * stride},
                                    {kStrip / 2, kTileRows, 1}, CU_TENSOR_MAP_SWIZZLE_128B) &&
                        make_map<4>(&maps.v, kHalf, halves + batch * rows * 2 * pitch, {pitch, 2, rows, count},
                                    {2 * pitch, 4 * pitch, 4 * rows * pitch}, {Stream::kWidth, 1, kTileRows, 1},
                                    Stream::kWidth == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
      if (!made) return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaLaunchKernelEx(
            &config, kernel, h + batch * stride + corner, halves + batch * rows * 2 * pitch, t + batch * width * width,
            transpose, scales + batch * shape.n + shape.offset, make_scales, remake_scales, column_scale(shape.m),
            src + batch * stride + corner, stride, shape.n, static_cast<int>(rows), static_cast<int>(width),
            static_cast<int>(pitch), static_cast<int>(shape.first - shape.offset), static_cast<int>(columns),
            static_cast<int>(known), static_cast<int>(strips), maps);
        error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

// How many CTAs share the rows of a strip: as many as take the least time, by the shape and the number of
// multiprocessors only.
cudaError_t plan_shares(const BlockReflectorShape& shape, bool aligned, int64_t* shares) {
  *shares = 1;
  int device, processors, clusters;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  if (error != cudaSuccess || !clusters) return error;
  const int64_t tiles = (shape.m - shape.offset + kTileRows - 1) / kTileRows,
                strips = shape.at_once * shape.batch * ((shape.last - shape.first + kStrip - 1) / kStrip);
  // In the time that a CTA alone on a multiprocessor takes for a tile: what it takes beside its tiles, and in clusters
  // of 1, 2, 4 and 8. Two on a multiprocessor, which has room for them where C is aligned, take kTogether times as
  // long. Larger clusters leave some multiprocessors empty, whose groups they do not fit, so that some come two to a
  // multiprocessor before all are taken.
  constexpr double kOverhead[] = {1.6, 2.0, 2.6, 4.1}, kTogether = 1.7;
  const int resident = aligned ? 2 : 1;
  double least = 0;
  for (int i = 0; i < 4 && (int64_t{1} << i) <= tiles; ++i) {
    const int64_t count = int64_t{1} << i, places = resident * (count > 2 ? processors * 10 / 11 : processors),
                  room = count > 2 ? processors * 3 / 4 : processors, waves = (strips * count + places - 1) / places;
    const double alone = static_cast<double>((tiles + count - 1) / count) + kOverhead[i],
                 time = static_cast<double>(waves) * alone * (aligned && strips * count > room ? kTogether : 1);
    if (count == 1 || time < 0.95 * least) {
      *shares = count;
      least = time;
    }
  }
  return cudaSuccess;
}

// Whether the device runs code that was compiled for Hopper. The runtime is asked once a device.
cudaError_t has_bulk_copies(bool* has) {
  constexpr int kDevices = 64;  // whose answers are kept
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, kDevices> answers{};
  int device;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const int answer = device < kDevices ? answers[device].load(std::memory_order_relaxed) : int{kUnknown};
  *has = answer == kYes;
  if (answer != kUnknown) return cudaSuccess;
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, block_reflector_kernel<BulkStream<32>, true, false>);
  if (error != cudaSuccess) return error;
  *has = attributes.ptxVersion / 10 == 9;
  if (device < kDevices) answers[device].store(*has ? kYes : kNo, std::memory_order_relaxed);
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_block_reflector(const BlockReflectorShape& shape, float* h, const __half* halves, const float* t,
                                   bool transpose, float* scales, bool make_scales, bool remake_scales,
                                   const float* src, cudaStream_t stream) {
  if (shape.batch == 0 || shape.first == shape.last) return cudaSuccess;
  if (shape.width > kMaxBlockReflectorWidth) return cudaErrorInvalidValue;
  const auto launch_width = [&](auto narrow, auto wide, int64_t shares) {
    return (shape.width <= 32 ? narrow : wide)(shares, shape, h, halves, t, transpose, scales, make_scales,
                                               make_scales || remake_scales, src, stream);
  };
  // Whether quads of C are 16-byte aligned and wholly inside or outside, and those in memory begin with one.
  const bool aligned = (shape.n | shape.first | shape.last) % 4 == 0 && (shape.known % 4 == 0 || shape.all_known());
  int64_t shares;
  if (const cudaError_t error = plan_shares(shape, aligned, &shares); error != cudaSuccess) return error;
  if (!aligned && shares > 1)
    return launch_width(launch<CopyStream<32>, false, true>, launch<CopyStream<64>, false, true>, shares);
  if (!aligned) return launch_width(launch<CopyStream<32>, false, false>, launch<CopyStream<64>, false, false>, 1);
  if (shares > 1) return launch_width(launch<CopyStream<32>, true, true>, launch<CopyStream<64>, true, true>, shares);
  bool bulk;
  if (const cudaError_t error = has_bulk_copies(&bulk); error != cudaSuccess) return error;
  return bulk ? launch_width(launch<BulkStream<32>, true, false>, launch<BulkStream<64>, true, false>, 1)
              : launch_width(launch<CopyStream<32>, true, false>, launch<CopyStream<64>, true, false>, 1);
}

}  // namespace jaxqr
