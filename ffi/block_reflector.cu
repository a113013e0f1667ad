// Fused block-reflector update C ← C - V·Tᵀ·(Vᵀ·C), in place on strided sub-blocks: one CTA a strip of kStrip columns
// of one matrix.
//
//   1. The largest magnitude of each column of the strip gives its exact power-of-two scale.
//   2. W = Vᵀ·C: row tiles of V and of the scaled C are split into pairs of halves (mma.cuh) in shared memory.
//   3. W ← Tᵀ·W in float32; its columns are scaled by powers of two of their own and split.
//   4. C ← C - V·W, tile by tile: C is read and written in the fragments of the product, V staged as in 2.
//
// C is read from memory once and, as a strip is small against the L2 cache, found there by steps 2 and 4. V is
// streamed. Every element of C belongs to one thread of one CTA; tiles in shared memory are published and retired by
// CTA barriers, and no loop's count depends on the data. Sums over rows leave the tensor cores' accumulators once a
// tile, to be added with proper rounding. Resources: 256 threads, about 90 KB of shared memory at width 64; where an SM
// has room for two CTAs, at most 128 registers a thread.
#include <algorithm>

#include "block_reflector.h"
#include "mma.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace jaxqr {
namespace {

constexpr int kThreads = 256;
constexpr int kStrip = 64;     // columns of C a CTA
constexpr int kTileRows = 64;  // rows of V and C staged at a time
constexpr int kPad = 8;        // halves added to a row, so that eight rows of a matrix load fall into different banks
constexpr int kQuads = kStrip / 4;
// Powers of two that bring V (at most 1) and scaled columns (at most 4) to the upper part of fp16's range.
constexpr float kReflectorScale = 0x1p14f, kColumnScale = 0x1p13f;
// CTAs for which an SM has shared memory at width 64: its registers are shared among as many.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ / 100 == 9 || __CUDA_ARCH__ / 100 == 10)
constexpr int kResident = 2;
#else
constexpr int kResident = 1;
#endif
constexpr float4 kUnscaled = {1.0f, 1.0f, 1.0f, 1.0f};

template <int kWidth>
struct Shared {
  __half v_high[kTileRows][kWidth + kPad], v_low[kTileRows][kWidth + kPad];
  __half c_high[kTileRows][kStrip + kPad], c_low[kTileRows][kStrip + kPad];
  __half w_high[kWidth][kStrip + kPad], w_low[kWidth][kStrip + kPad];
  float w[kWidth][kStrip + 4];
  float t[kWidth][kWidth];
  float scale[kStrip], unscale[kStrip];  // of C's columns: exact powers of two
  float unit[kStrip];                    // what one of the last product counts in a scaled column
  unsigned magnitude[2][kStrip];  // largest magnitudes of C's and of W's columns, as bits, which order like the values
};

// The `count` elements from `address` on, zeros after them. kAligned: 16-byte aligned, and count is at least 4 or at
// most 0.
template <bool kAligned>
__device__ __forceinline__ float4 load_quad(const float* address, int count) {
  if constexpr (kAligned) return count > 0 ? *reinterpret_cast<const float4*>(address) : float4{};
  return {count > 0 ? address[0] : 0.0f, count > 1 ? address[1] : 0.0f, count > 2 ? address[2] : 0.0f,
          count > 3 ? address[3] : 0.0f};
}

template <bool kAligned>
__device__ __forceinline__ float2 load_pair(const float* address, int count) {
  if constexpr (kAligned) return count > 0 ? *reinterpret_cast<const float2*>(address) : float2{};
  return {count > 0 ? address[0] : 0.0f, count > 1 ? address[1] : 0.0f};
}

template <bool kAligned>
__device__ __forceinline__ void store_pair(float* address, int count, float2 value) {
  if constexpr (kAligned) {
    if (count > 0) *reinterpret_cast<float2*>(address) = value;
  } else {
    if (count > 0) address[0] = value.x;
    if (count > 1) address[1] = value.y;
  }
}

__device__ __forceinline__ float4 scaled(float4 x, float4 s) { return {x.x * s.x, x.y * s.y, x.z * s.z, x.w * s.w}; }

// A thread's part of a tile of kTileRows rows of V (kWidth columns) or C (kStrip columns), on its way to shared memory:
// loaded a tile ahead, so that the loads' latency passes behind the products of the tile before.
template <int kColumns, bool kAligned>
struct Tile {
  static constexpr int kRowQuads = kColumns / 4, kCount = kTileRows * kRowQuads / kThreads,
                       kRowStep = kThreads / kRowQuads;
  float4 quads[kCount];

  __device__ static int column() { return threadIdx.x % kRowQuads * 4; }
  __device__ static int first_row() { return threadIdx.x / kRowQuads; }

  // Rows row … of `source`; zeros past `rows` and `columns`.
  __device__ __forceinline__ void load(const float* source, int64_t row_stride, int row, int rows, int columns) {
    const float* address = source + (row + first_row()) * row_stride + column();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      quads[i] = load_quad<kAligned>(address, row + first_row() + i * kRowStep < rows ? columns - column() : 0);
      address += kRowStep * row_stride;
    }
  }

  // Splits the quads times `scale` times `unit`: two factors, whose product may leave float32's range.
  __device__ __forceinline__ void store(__half (*high)[kColumns + kPad], __half (*low)[kColumns + kPad], float4 scale,
                                        float unit) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const SplitQuad parts = split(scaled(scaled(quads[i], scale), {unit, unit, unit, unit}));
      *reinterpret_cast<uint2*>(&high[first_row() + i * kRowStep][column()]) = parts.high;
      *reinterpret_cast<uint2*>(&low[first_row() + i * kRowStep][column()]) = parts.low;
    }
  }

  // Makes the tile from row 0 on a part of V: unit diagonal, zeros above it. No later tile reaches the diagonal.
  __device__ __forceinline__ void make_trapezoid() {
    static_assert(kColumns <= kTileRows, "the diagonal lies in the first tile");
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = first_row() + i * kRowStep;
      const auto element = [row](float value, int c) { return c < row ? value : c == row ? 1.0f : 0.0f; };
      quads[i] = {element(quads[i].x, column()), element(quads[i].y, column() + 1), element(quads[i].z, column() + 2),
                  element(quads[i].w, column() + 3)};
    }
  }
};

template <int kWidth, bool kAligned>
__global__ void __launch_bounds__(kThreads, kResident)
    block_reflector_kernel(float* h, const float* t, const float* src, int64_t matrix_stride, int64_t row_stride,
                           int rows, int width, int first, int columns, int strips) {
  static_assert(kWidth % 32 == 0 && kWidth <= kMaxBlockReflectorWidth, "two rows of warps of 16-row tiles");
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared<kWidth>& shared = *reinterpret_cast<Shared<kWidth>*>(shared_memory);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t matrix = blockIdx.x / strips;
  const int strip = static_cast<int>(blockIdx.x % strips) * kStrip;
  const int strip_columns = min(columns - strip, kStrip);
  h += matrix * matrix_stride;
  src += matrix * matrix_stride + first + strip;
  float* const target = h + first + strip;
  t += matrix * width * width;

  const int quad_column = threadIdx.x % kQuads * 4, quad_row = threadIdx.x / kQuads;  // for loads of C
  constexpr int kQuadRows = kThreads / kQuads;
  const int quad_count = strip_columns - quad_column;

  if (threadIdx.x < 2 * kStrip) (&shared.magnitude[0][0])[threadIdx.x] = 0;
  for (int index = threadIdx.x; index < kWidth * kWidth; index += kThreads) {
    const int i = index / kWidth, j = index % kWidth;
    shared.t[i][j] = i < width && j < width ? t[i * width + j] : 0.0f;
  }
  __syncthreads();

  {
    float4 magnitude = {};
#pragma unroll 8
    for (int row = quad_row; row < rows; row += kQuadRows) {
      const float4 c = load_quad<kAligned>(src + row * row_stride + quad_column, quad_count);
      magnitude = {fmaxf(magnitude.x, fabsf(c.x)), fmaxf(magnitude.y, fabsf(c.y)), fmaxf(magnitude.z, fabsf(c.z)),
                   fmaxf(magnitude.w, fabsf(c.w))};
    }
    atomicMax(&shared.magnitude[0][quad_column], __float_as_uint(magnitude.x));
    atomicMax(&shared.magnitude[0][quad_column + 1], __float_as_uint(magnitude.y));
    atomicMax(&shared.magnitude[0][quad_column + 2], __float_as_uint(magnitude.z));
    atomicMax(&shared.magnitude[0][quad_column + 3], __float_as_uint(magnitude.w));
  }
  __syncthreads();
  if (threadIdx.x < kStrip) {
    const float scale = power_of_two_scale(__uint_as_float(shared.magnitude[0][threadIdx.x]));
    shared.scale[threadIdx.x] = scale;
    shared.unscale[threadIdx.x] = reciprocal_of_scale(scale);
  }
  __syncthreads();

  // W = Vᵀ·C. Warps: two rows of kWidth/2, four columns of 16.
  constexpr int kRowTiles = kWidth / 32;
  const int matrix_index = lane / 8, matrix_row = lane % 8;  // which row of which 8×8 matrix this lane addresses
  const int w_row = warp / 4 * (kWidth / 2), w_column = warp % 4 * 16;
  Tile<kWidth, kAligned> v;
  float w[kRowTiles][2][4] = {};
  {
    const float4 scale = *reinterpret_cast<const float4*>(&shared.scale[quad_column]);
    Tile<kStrip, kAligned> c;
    v.load(h, row_stride, 0, rows, width);
    c.load(src, row_stride, 0, rows, strip_columns);
    v.make_trapezoid();
    for (int row = 0; row < rows; row += kTileRows) {
      v.store(shared.v_high, shared.v_low, kUnscaled, kReflectorScale);
      c.store(shared.c_high, shared.c_low, scale, kColumnScale);
      __syncthreads();
      if (row + kTileRows < rows) {
        v.load(h, row_stride, row + kTileRows, rows, width);
        c.load(src, row_stride, row + kTileRows, rows, strip_columns);
      }
      float tile[kRowTiles][2][4] = {};
#pragma unroll
      for (int k = 0; k < kTileRows; k += 16) {
        uint32_t c_high[4], c_low[4];
        const int c_row = k + matrix_index % 2 * 8 + matrix_row, c_column = w_column + matrix_index / 2 * 8;
        ptx::load_matrices_transposed(c_high, &shared.c_high[c_row][c_column]);
        ptx::load_matrices_transposed(c_low, &shared.c_low[c_row][c_column]);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          uint32_t v_high[4], v_low[4];
          const int v_row = k + matrix_index / 2 * 8 + matrix_row, v_column = w_row + 16 * i + matrix_index % 2 * 8;
          ptx::load_matrices_transposed(v_high, &shared.v_high[v_row][v_column]);
          ptx::load_matrices_transposed(v_low, &shared.v_low[v_row][v_column]);
          mma_split(tile[i], v_high, v_low, c_high, c_low);
        }
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) w[i][j / 4][j % 4] += tile[i][j / 4][j % 4];
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int row = w_row + 16 * i + lane / 4 + j % 4 / 2 * 8, column = w_column + j / 4 * 8 + lane % 4 * 2 + j % 2;
      shared.w[row][column] = w[i][j / 4][j % 4] * (1.0f / (kReflectorScale * kColumnScale));
    }
  }
  __syncthreads();

  // W ← Tᵀ·W: a thread a 4×4 block, skipping T's zeros.
  {
    const int i = threadIdx.x / kQuads * 4;
    float result[4][4] = {};
    if (i < kWidth) {
#pragma unroll 4
      for (int l = 0; l < i + 4; ++l) {
        const float4 t_row = *reinterpret_cast<const float4*>(&shared.t[l][i]);
        const float4 w_row = *reinterpret_cast<const float4*>(&shared.w[l][quad_column]);
        const float ts[4] = {t_row.x, t_row.y, t_row.z, t_row.w}, ws[4] = {w_row.x, w_row.y, w_row.z, w_row.w};
#pragma unroll
        for (int a = 0; a < 4; ++a) {
#pragma unroll
          for (int b = 0; b < 4; ++b) result[a][b] = fmaf(ts[a], ws[b], result[a][b]);
        }
      }
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const float magnitude =
            fmaxf(fmaxf(fabsf(result[0][b]), fabsf(result[1][b])), fmaxf(fabsf(result[2][b]), fabsf(result[3][b])));
        atomicMax(&shared.magnitude[1][quad_column + b], __float_as_uint(magnitude));
      }
    }
    __syncthreads();
    if (i < kWidth) {
      float scale[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        scale[b] = power_of_two_scale(__uint_as_float(shared.magnitude[1][quad_column + b]));
        if (i == 0)
          shared.unit[quad_column + b] = reciprocal_of_scale(scale[b]) * (1.0f / (kReflectorScale * kColumnScale));
      }
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const float4 row =
            scaled({result[a][0], result[a][1], result[a][2], result[a][3]}, {scale[0], scale[1], scale[2], scale[3]});
        const SplitQuad parts = split(scaled(row, {kColumnScale, kColumnScale, kColumnScale, kColumnScale}));
        *reinterpret_cast<uint2*>(&shared.w_high[i + a][quad_column]) = parts.high;
        *reinterpret_cast<uint2*>(&shared.w_low[i + a][quad_column]) = parts.low;
      }
    }
  }
  __syncthreads();

  // C ← C - V·W. Warps: four rows of 16, two columns of 32. The high parts of W's fragments stay in registers, the low
  // ones are read for every tile: registers are short.
  constexpr int kSteps = kWidth / 16;
  const int c_row = warp / 2 * 16, c_column = warp % 2 * 32;
  const int fragment_of_w = matrix_index % 2 * 8 + matrix_row, fragment_of_w_column = c_column + matrix_index / 2 * 8;
  uint32_t w_high[kSteps][2][4];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      ptx::load_matrices_transposed(w_high[k][pair],
                                    &shared.w_high[16 * k + fragment_of_w][fragment_of_w_column + 16 * pair]);
    }
  }
  v.load(h, row_stride, 0, rows, width);
  v.make_trapezoid();
  for (int row = 0; row < rows; row += kTileRows) {
    v.store(shared.v_high, shared.v_low, kUnscaled, kReflectorScale);
    __syncthreads();
    const int fragment_row = row + c_row + lane / 4, fragment_column = c_column + lane % 4 * 2;
    float2 c[2][4];  // rows fragment_row and 8 below, pairs of columns 8 apart
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      c[i / 4][i % 4] =
          load_pair<kAligned>(src + (fragment_row + i / 4 * 8) * row_stride + fragment_column + i % 4 * 8,
                              fragment_row + i / 4 * 8 < rows ? strip_columns - fragment_column - i % 4 * 8 : 0);
    }
    if (row + kTileRows < rows) v.load(h, row_stride, row + kTileRows, rows, width);
    float product[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t v_high[4], v_low[4];
      const int v_row = c_row + matrix_index % 2 * 8 + matrix_row, v_column = 16 * k + matrix_index / 2 * 8;
      ptx::load_matrices(v_high, &shared.v_high[v_row][v_column]);
      ptx::load_matrices(v_low, &shared.v_low[v_row][v_column]);
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t w_low[4];
        ptx::load_matrices_transposed(w_low, &shared.w_low[16 * k + fragment_of_w][fragment_of_w_column + 16 * pair]);
        mma_split(product[pair], v_high, v_low, w_high[k][pair], w_low);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = fragment_row + i / 4 * 8, column = fragment_column + i % 4 * 8;
      const float2 scale = *reinterpret_cast<const float2*>(&shared.scale[column]);
      const float2 unscale = *reinterpret_cast<const float2*>(&shared.unscale[column]);
      const float2 unit = *reinterpret_cast<const float2*>(&shared.unit[column]);
      const float* const sums = &product[i % 4 / 2][i % 2][i / 4 * 2];
      const float2 old = c[i / 4][i % 4];
      if (r < rows) {
        // In the scaled column nothing overflows, whatever the column's own range.
        store_pair<kAligned>(
            target + r * row_stride + column, strip_columns - column,
            {fmaf(-sums[0], unit.x, old.x * scale.x) * unscale.x, fmaf(-sums[1], unit.y, old.y * scale.y) * unscale.y});
      }
    }
    __syncthreads();
  }
}

constexpr int64_t kMaxGrid = 0x7fffffff;

template <int kWidth, bool kAligned>
cudaError_t launch(const BlockReflectorShape& shape, float* h, const float* t, const float* src, cudaStream_t stream) {
  const auto kernel = block_reflector_kernel<kWidth, kAligned>;
  const int shared_bytes = sizeof(Shared<kWidth>);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int64_t columns = shape.last - shape.first, strips = (columns + kStrip - 1) / kStrip;
  const int64_t stride = shape.m * shape.n, corner = shape.offset * shape.n + shape.offset, width = shape.width;
  const int64_t matrices = kMaxGrid / strips;  // of one launch
  for (int64_t batch = 0; batch < shape.batch; batch += matrices) {
    const unsigned grid = static_cast<unsigned>(std::min(shape.batch - batch, matrices) * strips);
    kernel<<<grid, kThreads, shared_bytes, stream>>>(
        h + batch * stride + corner, t + batch * width * width, src + batch * stride + corner, stride, shape.n,
        static_cast<int>(shape.m - shape.offset), static_cast<int>(width), static_cast<int>(shape.first - shape.offset),
        static_cast<int>(columns), static_cast<int>(strips));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_block_reflector(const BlockReflectorShape& shape, float* h, const float* t, const float* src,
                                   cudaStream_t stream) {
  if (shape.batch == 0 || shape.first == shape.last) return cudaSuccess;
  // Whether quads of V and C are 16-byte aligned and wholly inside or outside.
  const bool aligned = (shape.n | shape.offset | shape.width | shape.first | shape.last) % 4 == 0;
  if (shape.width <= 32)
    return aligned ? launch<32, true>(shape, h, t, src, stream) : launch<32, false>(shape, h, t, src, stream);
  if (shape.width <= kMaxBlockReflectorWidth)
    return aligned ? launch<64, true>(shape, h, t, src, stream) : launch<64, false>(shape, h, t, src, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxqr
