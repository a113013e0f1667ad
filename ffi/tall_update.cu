// The update of the columns right of a tall panel, C ← C - V·W with W = Tᵀ·(VᵀC), split over the rows. In float32, by
// three kernels:
//   1. project: one CTA a chunk of rows and a strip of columns. The strip's columns get exact power-of-two scales from
//      their largest magnitude in the chunk, and go to shared memory beside V. Each warp multiplies its rows of V into
//      its rows of the strip, a lane an 8×8 (or 16×4) tile of the product; the warps' sums are added. The first strips
//      are V itself: VᵀV.
//   2. sum: the chunks' products, in float64, which no scale leaves; a warp takes every sixteenth chunk. The sums are
//      rounded to float32 in a scale of the whole column.
//   3. subtract: one CTA a chunk of rows and 32 columns. While C comes to registers, a lane a column makes W by
//      substitution, w_k = tau_k·(p_k - Σ_{i<k} G_ik·w_i) with P = VᵀC and G = VᵀV; T is not formed. Then a lane
//      multiplies eight rows of V into four columns of W.
// VᵀV of smooth matrices has terms of one sign, and every error of it counts hundreds of times: a float32 chain is 32
// rows long. A column of C meets no other one: its NaN stays in it. Every sum has one order, and no loop's count
// depends on the data.
//
// Resources: 256 threads of at most 128 registers, two CTAs a multiprocessor where it has 192 KB of shared memory.
#include <algorithm>
#include <type_traits>

#include "float4.cuh"
#include "ptx.cuh"
#include "tall_update.h"
#include "warp.cuh"

namespace jaxqr {
namespace {

constexpr int64_t kMaxGrid = 0x7fffffff;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunkRows = kTallChunkRows, kWarpRows = kChunkRows / kWarps;
constexpr int kSumWarps = 16, kSumRows = 2;
constexpr int kSubtractColumns = 32;

// Columns of a strip of C: its product with V has 64 elements a lane.
template <int kWidth>
constexpr int kStrip = 2048 / kWidth;

// The strips of VᵀV have 32 columns.
template <int kWidth>
constexpr int kGramStrips = kWidth / 32;

template <int kWidth>
struct ProjectShared {
  float v[kChunkRows][kWidth];
  float c[kChunkRows][kStrip<kWidth>];
  unsigned magnitude[kStrip<kWidth>];  // as bits, which order like the values
};

template <int kWidth>
struct SubtractShared {
  static constexpr int kPitch = kWidth + 4;  // four rows of V lie in different banks
  float v[kChunkRows][kPitch];
  float gram[kWidth][kWidth];         // [i][k], i < k
  float w[kWidth][kSubtractColumns];  // P, then W
  float tau[kWidth], scale[kSubtractColumns];
};

// What every supported device offers.
static_assert(std::max({sizeof(ProjectShared<32>), sizeof(ProjectShared<64>), sizeof(SubtractShared<32>),
                        sizeof(SubtractShared<64>)}) <= 99 * 1024);

// Where a launch finds its operands; pointers are to the first of its matrices.
struct Operands {
  const float* v;  // row and column `offset`
  const float* c;  // row `offset`, column `offset + width`
  float* updated;  // the same place of the result
  const float* tau;
  float* workspace;
  int64_t matrix_stride, row_stride, workspace_stride, pitch;
  int rows, width, columns, chunks;
};

// Starts the copies of a chunk of V, with zeros for what is not there.
template <int kWidth, int kPitch>
__device__ __forceinline__ void load_v(float (*v)[kPitch], const float* from, int64_t row_stride, int rows, int width) {
  if ((row_stride % 4 | width % 4) == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0) {
#pragma unroll
    for (int i = 0; i < kChunkRows * (kWidth / 4); i += kThreads) {
      const int quad = i + threadIdx.x, row = quad / (kWidth / 4), column = quad % (kWidth / 4) * 4;
      ptx::copy_async_16(&v[row][column], from + row * row_stride + column, row < rows && column < width);
    }
  } else {
#pragma unroll 4
    for (int i = 0; i < kChunkRows * kWidth; i += kThreads) {
      const int row = (i + threadIdx.x) / kWidth, column = (i + threadIdx.x) % kWidth;
      ptx::copy_async_4(&v[row][column], from + row * row_stride + column, row < rows && column < width);
    }
  }
}

// On and above the diagonal of the first chunk. All copies are there, and a barrier follows.
template <int kWidth, int kPitch>
__device__ __forceinline__ void mask_v(float (*v)[kPitch], int width) {
  for (int i = threadIdx.x; i < kWidth * kWidth; i += kThreads) {
    const int row = i / kWidth, column = i % kWidth;
    if (row <= column) v[row][column] = row == column && column < width ? 1.0f : 0.0f;
  }
}

// Four neighbouring columns, of which `count` are there, of the rows row, row + kStep, … of C, of which `rows` are
// there. No load waits for another one.
template <int kStep, int kCount>
__device__ __forceinline__ void load_quads(float4 (&quads)[kCount], const float* from, int64_t row_stride, int row,
                                           int rows, int count, bool aligned) {
  if (count <= 0) rows = 0;
  if (aligned && (count >= 4 || count <= 0)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      quads[i] = row + i * kStep < rows ? *reinterpret_cast<const float4*>(from + i * kStep * row_stride) : float4{};
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float* const place = from + i * kStep * row_stride;
      const int there = row + i * kStep < rows ? count : 0;
      quads[i] = {there > 0 ? place[0] : 0.0f, there > 1 ? place[1] : 0.0f, there > 2 ? place[2] : 0.0f,
                  there > 3 ? place[3] : 0.0f};
    }
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) tall_project_kernel(const Operands of) {
  using Shared = ProjectShared<kWidth>;
  constexpr int kCols = kStrip<kWidth>, kColumnQuads = kCols / 4, kPasses = kChunkRows * kColumnQuads / kThreads;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const int strips = kGramStrips<kWidth> + (of.columns + kCols - 1) / kCols;
  const int strip = static_cast<int>(blockIdx.x % strips) - kGramStrips<kWidth>;
  const int chunk = static_cast<int>(blockIdx.x / strips % of.chunks);
  const int64_t matrix = blockIdx.x / strips / of.chunks, first_row = int64_t{chunk} * kChunkRows;
  const int rows = static_cast<int>(min(int64_t{kChunkRows}, of.rows - first_row));
  const int64_t place = matrix * of.matrix_stride + first_row * of.row_stride;
  load_v<kWidth>(shared.v, of.v + place, of.row_stride, rows, of.width);
  ptx::copy_async_commit();

  // This CTA's part of the chunk's block in the workspace.
  float* const block = of.workspace + matrix * of.workspace_stride + chunk * (kWidth + 1) * of.pitch +
                       (strip < 0 ? 32 * (strip + kGramStrips<kWidth>) : kWidth + strip * kCols);
  if (strip < 0) {
    if (threadIdx.x < 32) block[kWidth * of.pitch + threadIdx.x] = 1.0f;
  } else {
    if (threadIdx.x < kCols) shared.magnitude[threadIdx.x] = 0;
    const int column = threadIdx.x % kColumnQuads * 4, row = threadIdx.x / kColumnQuads;
    const int count = of.columns - strip * kCols - column;
    const float* from = of.c + place + strip * kCols + column + row * of.row_stride;
    const bool aligned = of.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
    constexpr int kStep = kThreads / kColumnQuads;
    float4 c[kPasses];
    load_quads<kStep>(c, from, of.row_stride, row, rows, count, aligned);
    float4 largest = {};
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      largest = {fmaxf(largest.x, fabsf(c[i].x)), fmaxf(largest.y, fabsf(c[i].y)), fmaxf(largest.z, fabsf(c[i].z)),
                 fmaxf(largest.w, fabsf(c[i].w))};
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) atomicMax(&shared.magnitude[column + i], __float_as_uint(element(largest, i)));
    __syncthreads();
    const auto magnitude = [&](int i) { return __uint_as_float(shared.magnitude[i]); };
    const float4 scale = {power_of_two_scale(magnitude(column)), power_of_two_scale(magnitude(column + 1)),
                          power_of_two_scale(magnitude(column + 2)), power_of_two_scale(magnitude(column + 3))};
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      *reinterpret_cast<float4*>(&shared.c[row + i * kStep][column]) = {c[i].x * scale.x, c[i].y * scale.y,
                                                                        c[i].z * scale.z, c[i].w * scale.w};
    }
    // The workspace has room for whole sets of 32 columns.
    if (threadIdx.x < kCols && static_cast<int>(threadIdx.x / 32 * 32) < of.columns - strip * kCols)
      block[kWidth * of.pitch + threadIdx.x] = magnitude(threadIdx.x);
  }
  ptx::copy_async_wait<0>();
  __syncthreads();
  if (chunk == 0) {
    mask_v<kWidth>(shared.v, of.width);
    __syncthreads();
  }

  // The product by `right`, kPitch apart, with 32·kRight columns.
  const auto multiply = [&](const float* right, auto right_pitch, auto right_quads) {
    constexpr int kPitch = decltype(right_pitch)::value, kRight = decltype(right_quads)::value, kLeft = kWidth / 16;
    float sums[4 * kLeft][4 * kRight] = {};
#pragma unroll 4
    for (int row = warp * kWarpRows; row < (warp + 1) * kWarpRows; ++row) {
      float4 x[kLeft], y[kRight];
#pragma unroll
      for (int i = 0; i < kLeft; ++i) x[i] = *reinterpret_cast<const float4*>(&shared.v[row][16 * i + lane / 8 * 4]);
#pragma unroll
      for (int i = 0; i < kRight; ++i)
        y[i] = *reinterpret_cast<const float4*>(right + row * kPitch + 32 * i + lane % 8 * 4);
#pragma unroll
      for (int k = 0; k < 4 * kLeft; ++k) {
#pragma unroll
        for (int c = 0; c < 4 * kRight; ++c)
          sums[k][c] = fmaf(element(x[k / 4], k % 4), element(y[c / 4], c % 4), sums[k][c]);
      }
    }
    __syncthreads();
    // The warps' sums take the place of V and C.
    constexpr int kSize = kWidth * 32 * kRight;
    static_assert(kWarps * kSize * sizeof(float) <= sizeof(Shared));
    float* const of_warps = reinterpret_cast<float*>(shared_memory);
#pragma unroll
    for (int k = 0; k < 4 * kLeft; ++k) {
#pragma unroll
      for (int i = 0; i < kRight; ++i) {
        const int at = (k / 4 * 16 + lane / 8 * 4 + k % 4) * 32 * kRight + 32 * i + lane % 8 * 4;
        *reinterpret_cast<float4*>(of_warps + warp * kSize + at) = {sums[k][4 * i], sums[k][4 * i + 1],
                                                                    sums[k][4 * i + 2], sums[k][4 * i + 3]};
      }
    }
    __syncthreads();
    for (int i = threadIdx.x * 4; i < kSize; i += kThreads * 4) {
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float4 x = *reinterpret_cast<const float4*>(of_warps + w * kSize + i);
        sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
      }
      *reinterpret_cast<float4*>(block + i / (32 * kRight) * of.pitch + i % (32 * kRight)) = sum;
    }
  };
  using One = std::integral_constant<int, 1>;
  using Pitch = std::integral_constant<int, kCols>;
  if (strip < 0)
    multiply(&shared.v[0][32 * (strip + kGramStrips<kWidth>)], std::integral_constant<int, kWidth>{}, One{});
  else if (kCols > 32 && of.columns - strip * kCols > 32)
    multiply(&shared.c[0][0], Pitch{}, std::integral_constant<int, kCols / 32>{});
  else
    multiply(&shared.c[0][0], Pitch{}, One{});
}

// One CTA a set of 32 columns and kSumRows rows of the blocks.
template <int kWidth>
__global__ void __launch_bounds__(32 * kSumWarps) tall_sum_kernel(const Operands of) {
  __shared__ double of_warps[kSumWarps][kSumRows][32];
  __shared__ float magnitudes[kSumWarps][32];
  constexpr int kGroups = kWidth / kSumRows;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sets = static_cast<int>(of.pitch / 32);
  const int first_row = static_cast<int>(blockIdx.x % kGroups) * kSumRows;
  const int64_t column = static_cast<int>(blockIdx.x / kGroups % sets) * 32 + lane, size = (kWidth + 1) * of.pitch;
  float* const blocks = of.workspace + blockIdx.x / kGroups / sets * of.workspace_stride + column;

  double sums[kSumRows] = {};
  float magnitude = 0.0f;
#pragma unroll 4
  for (int chunk = warp; chunk < of.chunks; chunk += kSumWarps) {
    const float* const block = blocks + chunk * size;
    const float in_chunk = block[kWidth * of.pitch];
    const double unscale = reciprocal_of_scale(power_of_two_scale(in_chunk));
    magnitude = fmaxf(magnitude, in_chunk);
#pragma unroll
    for (int i = 0; i < kSumRows; ++i) sums[i] += unscale * block[(first_row + i) * of.pitch];
  }
#pragma unroll
  for (int i = 0; i < kSumRows; ++i) of_warps[warp][i][lane] = sums[i];
  magnitudes[warp][lane] = magnitude;
  __syncthreads();
  if (warp >= kSumRows) return;
  double sum = 0.0;
#pragma unroll
  for (int w = 0; w < kSumWarps; ++w) {
    sum += of_warps[w][warp][lane];
    magnitude = fmaxf(magnitude, magnitudes[w][lane]);
  }
  const float scale = power_of_two_scale(magnitude);
  float* const result = blocks + of.chunks * size;
  result[(first_row + warp) * of.pitch] = static_cast<float>(sum * scale);
  if (first_row + warp == 0) result[kWidth * of.pitch] = scale;
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) tall_subtract_kernel(const Operands of) {
  using Shared = SubtractShared<kWidth>;
  constexpr int kTileRows = 8;  // of a lane, four apart
  constexpr int kSolved = 8;    // rows of W made at a time, in registers
  static_assert(kWarpRows == 4 * kTileRows);
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const int strips = (of.columns + kSubtractColumns - 1) / kSubtractColumns;
  const unsigned index = gridDim.x - 1 - blockIdx.x;  // what was read last may still be in the cache
  const int first_column = static_cast<int>(index % strips) * kSubtractColumns;
  const int chunk = static_cast<int>(index / strips % of.chunks);
  const int64_t matrix = index / strips / of.chunks, first_row = int64_t{chunk} * kChunkRows;
  const int rows = static_cast<int>(min(int64_t{kChunkRows}, of.rows - first_row));
  const int64_t place = matrix * of.matrix_stride + first_row * of.row_stride;
  const float* const sums = of.workspace + matrix * of.workspace_stride + of.chunks * (kWidth + 1) * of.pitch;

#pragma unroll
  for (int i = 0; i < kWidth * (kWidth / 4); i += kThreads) {
    const int quad = i + threadIdx.x, k = quad / (kWidth / 4), column = quad % (kWidth / 4) * 4;
    ptx::copy_async_16(&shared.gram[k][column], sums + k * of.pitch + column, true);
  }
#pragma unroll
  for (int i = 0; i < kWidth * (kSubtractColumns / 4); i += kThreads) {
    const int quad = i + threadIdx.x, k = quad / (kSubtractColumns / 4), column = quad % (kSubtractColumns / 4) * 4;
    ptx::copy_async_16(&shared.w[k][column], sums + k * of.pitch + kWidth + first_column + column, true);
  }
  const int i = threadIdx.x;
  if (i < kWidth) ptx::copy_async_4(&shared.tau[i], of.tau + matrix * of.width + i, i < of.width);
  if (i < kSubtractColumns)
    ptx::copy_async_4(&shared.scale[i], sums + kWidth * of.pitch + kWidth + first_column + i, true);
  ptx::copy_async_commit();
  load_v<kWidth>(shared.v, of.v + place, of.row_stride, rows, of.width);
  ptx::copy_async_commit();

  const int row = warp * kWarpRows + lane / 8, column = lane % 8 * 4, count = of.columns - first_column - column;
  const int64_t own = place + row * of.row_stride + first_column + column;
  const bool aligned = of.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(of.c + own) % sizeof(float4) == 0 &&
                       reinterpret_cast<uintptr_t>(of.updated + own) % sizeof(float4) == 0;
  float4 c[kTileRows];
  load_quads<4>(c, of.c + own, of.row_stride, row, rows, count, aligned);

  ptx::copy_async_wait<1>();
  __syncthreads();
  if (warp == 0) {
#pragma unroll 1
    for (int base = 0; base < kWidth; base += kSolved) {
      float x[kSolved];
#pragma unroll
      for (int i = 0; i < kSolved; ++i) x[i] = shared.w[base + i][lane];
#pragma unroll 4
      for (int k = 0; k < base; ++k) {
        const float w_k = shared.w[k][lane];
#pragma unroll
        for (int i = 0; i < kSolved; i += 4) {
          const float4 g = *reinterpret_cast<const float4*>(&shared.gram[k][base + i]);
#pragma unroll
          for (int j = 0; j < 4; ++j) x[i + j] = fmaf(-element(g, j), w_k, x[i + j]);
        }
      }
#pragma unroll
      for (int k = 0; k < kSolved; ++k) {
        x[k] *= shared.tau[base + k];
        shared.w[base + k][lane] = x[k];
#pragma unroll
        for (int i = k / 4 * 4; i < kSolved; i += 4) {
          const float4 g = *reinterpret_cast<const float4*>(&shared.gram[base + k][base + i]);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (i + j > k) x[i + j] = fmaf(-element(g, j), x[k], x[i + j]);
          }
        }
      }
    }
  }
  ptx::copy_async_wait<0>();
  __syncthreads();
  if (chunk == 0) {
    mask_v<kWidth>(shared.v, of.width);
    __syncthreads();
  }

  float y[kTileRows][4] = {};
#pragma unroll 1
  for (int k = 0; k < kWidth; k += 4) {
    float4 of_w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) of_w[i] = *reinterpret_cast<const float4*>(&shared.w[k + i][column]);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      const float4 of_v = *reinterpret_cast<const float4*>(&shared.v[row + 4 * i][k]);
#pragma unroll
      for (int l = 0; l < 4; ++l) {
#pragma unroll
        for (int j = 0; j < 4; ++j) y[i][j] = fmaf(element(of_v, l), element(of_w[l], j), y[i][j]);
      }
    }
  }
  const float4 scale = *reinterpret_cast<const float4*>(&shared.scale[column]);
  // Places are found again rather than kept in registers.
  float* const updated = of.updated + ptx::recomputed(own);
  const int64_t row_stride = ptx::recomputed(of.row_stride);
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    if (row + 4 * i >= rows) continue;
    float result[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float s = element(scale, j);
      result[j] = (element(c[i], j) * s - y[i][j]) * reciprocal_of_scale(s);
    }
    float* const to = updated + 4 * i * row_stride;
    if (aligned && count >= 4) {
      *reinterpret_cast<float4*>(to) = {result[0], result[1], result[2], result[3]};
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < count) to[j] = result[j];
      }
    }
  }
}

// Launches a kernel of `blocks` CTAs a matrix for all matrices, in as few launches as grids allow.
template <typename Kernel>
cudaError_t launch_each(Kernel kernel, const TallUpdateShape& shape, Operands of, int64_t blocks, int threads,
                        size_t shared_bytes, cudaStream_t stream) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
      error != cudaSuccess)
    return error;
  const int64_t matrices = kMaxGrid / blocks;
  for (int64_t first = 0; first < shape.batch; first += matrices) {
    const int64_t count = std::min(shape.batch - first, matrices);
    kernel<<<static_cast<unsigned>(count * blocks), threads, shared_bytes, stream>>>(of);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    of.v += count * of.matrix_stride;
    of.c += count * of.matrix_stride;
    of.updated += count * of.matrix_stride;
    of.tau += count * of.width;
    of.workspace += count * of.workspace_stride;
  }
  return cudaSuccess;
}

template <int kWidth>
cudaError_t launch(const TallUpdateShape& shape, const Operands& of, cudaStream_t stream) {
  const int64_t strips = kGramStrips<kWidth> + (of.columns + kStrip<kWidth> - 1) / kStrip<kWidth>;
  if (const cudaError_t error = launch_each(tall_project_kernel<kWidth>, shape, of, of.chunks * strips, kThreads,
                                            sizeof(ProjectShared<kWidth>), stream);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = launch_each(tall_sum_kernel<kWidth>, shape, of, of.pitch / 32 * (kWidth / kSumRows),
                                            32 * kSumWarps, 0, stream);
      error != cudaSuccess)
    return error;
  const int64_t narrow_strips = (of.columns + kSubtractColumns - 1) / kSubtractColumns;
  return launch_each(tall_subtract_kernel<kWidth>, shape, of, of.chunks * narrow_strips, kThreads,
                     sizeof(SubtractShared<kWidth>), stream);
}

}  // namespace

cudaError_t launch_tall_update(const TallUpdateShape& shape, float* h, const float* tau, float* workspace,
                               const float* src, cudaStream_t stream) {
  if (shape.width > kMaxTallUpdateWidth) return cudaErrorInvalidValue;
  if (shape.columns() == 0) return cudaSuccess;
  const int64_t corner = shape.offset * (shape.n + 1), right = corner + shape.width;
  const Operands of{h + corner,
                    src + right,
                    h + right,
                    tau,
                    workspace,
                    shape.m * shape.n,
                    shape.n,
                    shape.workspace(),
                    shape.pitch(),
                    static_cast<int>(shape.rows()),
                    static_cast<int>(shape.width),
                    static_cast<int>(shape.columns()),
                    static_cast<int>(shape.chunks())};
  return shape.width <= 32 ? launch<32>(shape, of, stream) : launch<64>(shape, of, stream);
}

}  // namespace jaxqr
