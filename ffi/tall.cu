// What tall panels need beside the factorization of their leaves (leaves.h): the stack of triangles, and the lift of
// the stack's reflectors to the panel's rows, one CTA a leaf.
//
// The lift. A leaf's Q = I - V·T·Vᵀ, and its part B of the stack's vectors, which is upper triangular, as no column of
// the triangles reaches below the diagonal. Y = Q·[B; 0] = [B; 0] - V·W with W = T·(V₁ᵀ·B), V₁ the first rows of V:
//   1. V comes to shared memory by asynchronous copies. A warp owns strips of sixteen rows, which no other warp reads
//      but for V₁.
//   2. G = VᵀV: a lane has a tile of 8×4 of a 32×32 part, sums it over a strip, then over its strips; the warps add
//      up one after the other.
//   3. W by substitution, w_k = tau_k·(z_k - Σ_{l>k} G_kl·w_l) with Z = V₁ᵀ·B: one thread a column, by blocks of 32. T
//      is not formed.
//   4. Y over V in `h`: a lane has a tile of four rows and four columns.
// Column c of Y takes columns k ≤ c of V, G and W and nothing else, not even times zero: NaN of a later column stays
// there. Every sum has one order, and no loop's count depends on the data.
//
// The last leaf's CTA also copies the first rows of the panel. Resources: 4·kWidth threads, at most 128 registers a
// thread, the leaf's rows in shared memory.
#include <algorithm>
#include <type_traits>

#include "float4.cuh"
#include "ptx.cuh"
#include "tall.h"

namespace jaxqr {
namespace {

constexpr int64_t kMaxGrid = 0x7fffffff;
constexpr int kStripRows = 16;

// One CTA a block of `width` rows of the stack.
__global__ void __launch_bounds__(256)
    stack_kernel(const float* src, const float* h, float* stack, int64_t matrix_stride, int64_t row_stride,
                 RowSplit split, int width) {
  const int64_t matrix = blockIdx.x / (split.blocks + 1);
  const int leaf = static_cast<int>(blockIdx.x % (split.blocks + 1)) - 1;
  const int64_t first_row = leaf < 0 ? 0 : width + split.first_row(leaf);
  const float* const from = (leaf < 0 ? src : h) + matrix * matrix_stride + first_row * row_stride;
  float* const to = stack + int64_t{blockIdx.x} * width * width;
  for (int i = threadIdx.x; i < width * width; i += blockDim.x) {
    const int row = i / width, column = i % width;
    to[i] = leaf < 0 || row <= column ? from[row * row_stride + column] : 0.0f;
  }
}

// Followed by all rows of the leaf's V, kPitch apart, in whole strips.
template <int kWidth>
struct LiftShared {
  static constexpr int kPitch = kWidth + 4;
  float gram[kWidth][kPitch];  // [k][i], i < k
  float w[kWidth][kPitch];     // B, then Z, then W
  float tau[kWidth];
};

template <int kWidth>
int64_t shared_bytes_of(int rows) {
  const int64_t strips = (rows + kStripRows - 1) / kStripRows;
  return sizeof(LiftShared<kWidth>) + strips * kStripRows * LiftShared<kWidth>::kPitch * sizeof(float);
}

template <int kWidth>
__global__ void __launch_bounds__(4 * kWidth, 128 / kWidth)
    lift_kernel(float* h, const float* tau, const float* stack, int64_t matrix_stride, int64_t row_stride,
                RowSplit split, int width) {
  using Shared = LiftShared<kWidth>;
  constexpr int kWarps = kWidth / 8, kThreads = 32 * kWarps, kBlocks = kWidth / 32, kQuads = kWidth / 4;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  float (*const v)[Shared::kPitch] = reinterpret_cast<float (*)[Shared::kPitch]>(&shared + 1);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t matrix = blockIdx.x / split.blocks;
  const int leaf = static_cast<int>(blockIdx.x % split.blocks), rows = split.rows_of(leaf);
  const int strips = (rows + kStripRows - 1) / kStripRows;
  h += matrix * matrix_stride;
  stack += matrix * (split.blocks + 1) * width * width;
  float* const own = h + (width + split.first_row(leaf)) * row_stride;  // this leaf's rows
  const float* const b = stack + int64_t{leaf + 1} * width * width;
  const bool aligned = (row_stride % 4 | width % 4) == 0 && reinterpret_cast<uintptr_t>(own) % sizeof(float4) == 0;

  for (int strip = warp; strip < strips; strip += kWarps) {
    const int first = strip * kStripRows;
    if (aligned) {
#pragma unroll
      for (int i = lane; i < kStripRows * kQuads; i += 32) {
        const int row = first + i / kQuads, column = i % kQuads * 4;
        ptx::copy_async_16(&v[row][column], own + row * row_stride + column, row < rows && column < width);
      }
    } else {
#pragma unroll 8
      for (int i = lane; i < kStripRows * kWidth; i += 32) {
        const int row = first + i / kWidth, column = i % kWidth;
        ptx::copy_async_4(&v[row][column], own + row * row_stride + column, row < rows && column < width);
      }
    }
  }
  ptx::copy_async_commit();
  for (int i = threadIdx.x; i < kWidth * kWidth; i += kThreads) {
    const int row = i / kWidth, column = i % kWidth;
    shared.w[row][column] = row <= column && column < width ? b[row * width + column] : 0.0f;
  }
  for (int i = threadIdx.x; i < kWidth; i += kThreads)
    shared.tau[i] = i < width ? tau[int64_t{blockIdx.x} * width + i] : 0.0f;
  ptx::copy_async_wait<0>();
  __syncwarp();
  for (int strip = warp; strip < min(strips, kWidth / kStripRows); strip += kWarps) {
    for (int i = lane; i < kStripRows * kWidth; i += 32) {
      const int row = strip * kStripRows + i / kWidth, column = i % kWidth;
      if (row <= column) v[row][column] = row == column && column < width ? 1.0f : 0.0f;
    }
  }
  __syncwarp();

  // G, part by part.
#pragma unroll 1
  for (int part = 0; part < kBlocks * (kBlocks + 1) / 2; ++part) {
    const int right = part > 0, left = part > 1;  // (0, 0), (0, 1), (1, 1)
    const int i0 = 32 * left + lane / 8 * 8, k0 = 32 * right + lane % 8 * 4;
    float sums[4][8] = {};
    for (int strip = warp; strip < strips; strip += kWarps) {
      float of_strip[4][8] = {};
#pragma unroll 4
      for (int row = strip * kStripRows; row < (strip + 1) * kStripRows; ++row) {
        const float4 x0 = *reinterpret_cast<const float4*>(&v[row][i0]);
        const float4 x1 = *reinterpret_cast<const float4*>(&v[row][i0 + 4]);
        const float4 y = *reinterpret_cast<const float4*>(&v[row][k0]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            of_strip[k][i] = fmaf(element(i < 4 ? x0 : x1, i % 4), element(y, k), of_strip[k][i]);
        }
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[k][i] += of_strip[k][i];
      }
    }
    for (int adding = 0; adding < kWarps; ++adding) {
      if (warp == adding) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int i = 0; i < 8; i += 4) {
            float4* const place = reinterpret_cast<float4*>(&shared.gram[k0 + k][i0 + i]);
            const float4 sum = warp == 0 ? float4{} : *place;
            *place = {sum.x + sums[k][i], sum.y + sums[k][i + 1], sum.z + sums[k][i + 2], sum.w + sums[k][i + 3]};
          }
        }
      }
      __syncthreads();
    }
  }

  // Z takes the place of B.
  {
    constexpr int kCount = kWidth * kWidth / kThreads;
    float z[kCount] = {};
#pragma unroll 4
    for (int row = 0; row < width; ++row) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const int i = threadIdx.x + j * kThreads;
        z[j] = fmaf(v[row][i / kWidth], shared.w[row][i % kWidth], z[j]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int i = threadIdx.x + j * kThreads;
      shared.w[i / kWidth][i % kWidth] = z[j];
    }
  }
  __syncthreads();

  if (threadIdx.x < kWidth) {
    const int column = threadIdx.x;
#pragma unroll 1
    for (int base = kWidth - 32; base >= 0; base -= 32) {
      float x[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) x[i] = shared.w[base + i][column];
      for (int k = base + 32; k <= column; ++k) {
        const float w_k = shared.w[k][column];
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
          const float4 g = *reinterpret_cast<const float4*>(&shared.gram[k][base + i]);
#pragma unroll
          for (int j = 0; j < 4; ++j) x[i + j] = fmaf(-element(g, j), w_k, x[i + j]);
        }
      }
#pragma unroll
      for (int k = 31; k >= 0; --k) {
        if (base + k <= column) {
          x[k] *= shared.tau[base + k];
#pragma unroll
          for (int i = 0; i < k; i += 4) {
            const float4 g = *reinterpret_cast<const float4*>(&shared.gram[base + k][base + i]);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              if (i + j < k) x[i + j] = fmaf(-element(g, j), x[k], x[i + j]);
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (base + i <= column) shared.w[base + i][column] = x[i];
      }
    }
  }
  __syncthreads();

  // A lane's rows are lane/8 + 4·i of a strip: neighbours' lie in different banks.
  for (int strip = warp; strip < strips; strip += kWarps) {
    const int first = strip * kStripRows + lane / 8;
#pragma unroll 1
    for (int block = 0; block < kBlocks; ++block) {
      const int column = 32 * block + lane % 8 * 4;
      float y[4][4] = {};
      const auto add = [&](int k, auto is_diagonal) {
        float4 of_v[4], of_w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          of_v[i] = *reinterpret_cast<const float4*>(&v[first + 4 * i][k]);
          of_w[i] = *reinterpret_cast<const float4*>(&shared.w[k + i][column]);
        }
#pragma unroll
        for (int l = 0; l < 4; ++l) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              if (!decltype(is_diagonal)::value || l <= c)
                y[i][c] = fmaf(element(of_v[i], l), element(of_w[l], c), y[i][c]);
            }
          }
        }
      };
      for (int k = 0; k < column; k += 4) add(k, std::false_type{});
      __syncwarp();  // the lanes left the loop at different columns
      add(column, std::true_type{});
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + 4 * i;
        if (row >= rows) continue;
        float result[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const bool in_b = row <= column + c && column + c < width;
          result[c] = (in_b ? b[row * width + column + c] : 0.0f) - y[i][c];
        }
        float* const place = own + row * row_stride + column;
        if (aligned) {
          if (column < width) *reinterpret_cast<float4*>(place) = {result[0], result[1], result[2], result[3]};
        } else {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (column + c < width) place[c] = result[c];
          }
        }
      }
    }
  }

  if (leaf == split.blocks - 1) {
    for (int i = threadIdx.x; i < width * width; i += kThreads) h[i / width * row_stride + i % width] = stack[i];
  }
}

template <int kWidth>
cudaError_t launch(const LeavesShape& shape, float* h, const float* tau, const float* stack, cudaStream_t stream) {
  const int shared_bytes = static_cast<int>(lift_shared_bytes(shape));
  const auto kernel = lift_kernel<kWidth>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int64_t stride = shape.m * shape.n, corner = shape.offset * (shape.n + 1), matrices = kMaxGrid / shape.leaves;
  for (int64_t first = 0; first < shape.batch; first += matrices) {
    const int64_t grid = std::min(shape.batch - first, matrices) * shape.leaves;
    kernel<<<static_cast<unsigned>(grid), 4 * kWidth, shared_bytes, stream>>>(
        h + first * stride + corner, tau + first * shape.leaves * shape.width,
        stack + first * shape.stack_rows() * shape.width, stride, shape.n, shape.split(),
        static_cast<int>(shape.width));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_stack(const LeavesShape& shape, const float* src, const float* h, float* stack,
                         cudaStream_t stream) {
  const int64_t stride = shape.m * shape.n, corner = shape.offset * (shape.n + 1), blocks = shape.leaves + 1,
                matrices = kMaxGrid / blocks;
  for (int64_t first = 0; first < shape.batch; first += matrices) {
    const int64_t grid = std::min(shape.batch - first, matrices) * blocks;
    stack_kernel<<<static_cast<unsigned>(grid), 256, 0, stream>>>(
        src + first * stride + corner, h + first * stride + corner, stack + first * shape.stack_rows() * shape.width,
        stride, shape.n, shape.split(), static_cast<int>(shape.width));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int64_t lift_shared_bytes(const LeavesShape& shape) {
  const int rows = shape.split().highest();
  return shape.width <= 32 ? shared_bytes_of<32>(rows) : shared_bytes_of<64>(rows);
}

cudaError_t launch_lift(const LeavesShape& shape, float* h, const float* tau, const float* stack, cudaStream_t stream) {
  if (shape.width > kMaxTallWidth) return cudaErrorInvalidValue;
  return shape.width <= 32 ? launch<32>(shape, h, tau, stack, stream) : launch<64>(shape, h, tau, stack, stream);
}

}  // namespace jaxqr
