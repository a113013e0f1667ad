// Block reflectors of a factorization's compact form: V as pairs of halves and T, one CTA a block of one matrix.
//
// A warp takes strips of sixteen rows, which it splits into halves (mma.cuh), writes out, and multiplies into its part
// of VᵀV by the tensor cores. Lane (g, t) = 4·g + t holds kCols neighbouring columns from kCols·g on of the rows 2·t,
// 2·t + 1 and those 8 below: the product's index 8·j + g stands for column kCols·g + j, so that a lane's elements are
// fragments as they are, on the left as on the right. Of the 16×8 tiles of this symmetric product only those with j ≥ i
// are made. T of smooth matrices, whose columns are nearly parallel, multiplies every error of VᵀV by hundreds, and
// those of sums that only grow go one way: so each strip's product, of all four pairs of halves, leaves the tensor
// cores' accumulators, which truncate, and is added with proper rounding, and every kSumStrips strips the warps' sums
// are added.
//
// Every sum has one order, and no loop's count depends on the data, with one exception: a block with entries of 2 and
// more, which LAPACK makes not, is streamed once more with its columns scaled.
#include <algorithm>

#include "mma.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"
#include "reflectors.h"
#include "t_factor.cuh"
#include "warp.cuh"

namespace jaxqr {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kStripRows = 16, kSumStrips = 16;
constexpr int kMaxBlocks = 64;  // of a launch

struct Blocks {
  ReflectorBlock block[kMaxBlocks];
};

// Tiles of the product: 16 rows of the sets 2·i and 2·i + 1 times the eight columns of set j ≥ 2·i.
template <int kWidth>
constexpr int kTiles = kWidth / 16 * (kWidth / 16 + 1);

// Calls use(tile, i, j) for every other of them: two neighbours, whose products need not wait for each other.
template <int kWidth, typename Use>
__device__ __forceinline__ void for_each_two_tiles(Use use) {
  int tile = 0;
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) {
#pragma unroll
    for (int j = 2 * i; j < kWidth / 8; j += 2, tile += 2) use(tile, i, j);
  }
}

template <int kWidth>
struct __align__(16) Shared {
  float sums[kTiles<kWidth>][4][32];  // as the accumulators
  float coupling[kWidth * kWidth];
  float scratch[kWidth > 32 ? kWidth * kWidth : 4];
  float scale[kWidth], tau[kWidth];
  unsigned magnitude[kWidth];  // of V's columns, as bits, which order like the values
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth == 64 ? 2 : 3)
    reflectors_kernel(const __grid_constant__ Blocks blocks, const float* h, const float* tau, int64_t matrix_stride,
                      int64_t row_stride, int m, int k, int first_column, int matrices) {
  constexpr int kCols = kWidth / 8;
  __shared__ Shared<kWidth> shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // The matrices of the first block, whose V are the highest, come first.
  const ReflectorBlock& block = blocks.block[blockIdx.x / matrices];
  const int64_t matrix = blockIdx.x % matrices;
  const int width = static_cast<int>(block.width), rows = m - static_cast<int>(block.offset);
  const int pitch = static_cast<int>(reflector_pitch(width));
  const int column = lane / 4 * kCols;  // this lane's first
  h += matrix * matrix_stride + block.offset * (row_stride + 1) + column;
  __half* const halves = block.halves + matrix * rows * 2 * pitch + column;
  const bool aligned = row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(h) % sizeof(float4) == 0;

  for (int i = threadIdx.x; i < kWidth; i += kThreads) {
    shared.scale[i] = kReflectorScale;
    shared.magnitude[i] = 0;
  }
  for (int i = threadIdx.x; i < kWidth * kWidth; i += kThreads) shared.coupling[i] = 0.0f;
  __syncthreads();

  // Row i of a lane's four in a strip.
  const auto row_of = [&](int strip, int i) { return strip * kStripRows + i / 2 * 8 + lane % 4 * 2 + i % 2; };
  for (bool again = false;; again = true) {
    float4 next[4][kCols / 4];  // of the next strip
    const auto load = [&](int strip) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_of(strip, i);
        const float* const place = h + row * row_stride;
#pragma unroll
        for (int c = 0; c < kCols; c += 4) {
          const int count = row < rows ? width - column - c : 0;
          float4& quad = next[i][c / 4];
          if (aligned && count >= 4) {
            quad = *reinterpret_cast<const float4*>(place + c);
          } else {
            quad = {count > 0 ? place[c] : 0.0f, count > 1 ? place[c + 1] : 0.0f, count > 2 ? place[c + 2] : 0.0f,
                    count > 3 ? place[c + 3] : 0.0f};
          }
        }
      }
    };
    float magnitude[kCols] = {};
    float acc[kTiles<kWidth>][4] = {};
    load(warp);
    const int strips = (rows + kStripRows - 1) / kStripRows, turns = (strips + kWarps - 1) / kWarps;
    for (int turn = 0; turn < turns; ++turn) {
      const int strip = turn * kWarps + warp;
      uint32_t parts[2][4][kCols / 2];  // high and low parts of pairs of columns
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_of(strip, i);
#pragma unroll
        for (int c = 0; c < kCols; c += 4) {
          float v[4] = {next[i][c / 4].x, next[i][c / 4].y, next[i][c / 4].z, next[i][c / 4].w};
          const float4 scale = *reinterpret_cast<const float4*>(&shared.scale[column + c]);
          const float scales[4] = {scale.x, scale.y, scale.z, scale.w};
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            const int own = column + c + q;
            if (strip * kStripRows < kWidth)  // on and above the diagonal
              v[q] = row > own ? v[q] : row == own && own < width ? 1.0f : 0.0f;
            magnitude[c + q] = fmaxf(magnitude[c + q], fabsf(v[q]));
            v[q] *= scales[q];
          }
          const SplitQuad quad = split({v[0], v[1], v[2], v[3]});
          parts[0][i][c / 2] = quad.high.x;
          parts[0][i][c / 2 + 1] = quad.high.y;
          parts[1][i][c / 2] = quad.low.x;
          parts[1][i][c / 2 + 1] = quad.low.y;
        }
        if (row < rows && column < pitch) {
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            const uint32_t (&words)[kCols / 2] = parts[part][i];
            __half* const place = halves + (2 * int64_t{ptx::recomputed(row)} + part) * pitch;
            if constexpr (kCols == 8)
              *reinterpret_cast<uint4*>(place) = {words[0], words[1], words[2], words[3]};
            else
              *reinterpret_cast<uint2*>(place) = {words[0], words[1]};
          }
        }
      }
      uint32_t fragments[2][kCols][2];  // pairs of rows
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            fragments[part][c][i] =
                __byte_perm(parts[part][2 * i][c / 2], parts[part][2 * i + 1][c / 2], c % 2 ? 0x7632 : 0x5410);
          }
        }
      }
      if (turn + 1 < turns) load(strip + kWarps);
      for_each_two_tiles<kWidth>([&](int tile, int i, int j) {
        float sums[2][4] = {};
#pragma unroll
        for (int product = 0; product < 4; ++product) {  // low·low, low·high, high·low, high·high
          const auto& left = fragments[product < 2];
          const auto& right = fragments[product % 2 == 0];
          const uint32_t a[4] = {left[2 * i][0], left[2 * i + 1][0], left[2 * i][1], left[2 * i + 1][1]};
#pragma unroll
          for (int of = 0; of < 2; ++of) ptx::mma_m16n8k16(sums[of], a, right[j + of][0], right[j + of][1]);
        }
#pragma unroll
        for (int q = 0; q < 8; ++q) acc[tile + q / 4][q % 4] += sums[q / 4][q % 4];
      });
      if (turn + 1 == turns || (turn + 1) % kSumStrips == 0) {
        for (int adding = 0; adding < kWarps; ++adding) {
          if (warp == adding) {
            const bool start = warp == 0 && turn < kSumStrips;
#pragma unroll
            for (int tile = 0; tile < kTiles<kWidth>; ++tile) {
#pragma unroll
              for (int q = 0; q < 4; ++q) {
                float& sum = shared.sums[tile][q][lane];
                sum = (start ? 0.0f : sum) + acc[tile][q];
                acc[tile][q] = 0.0f;
              }
            }
          }
          __syncthreads();
        }
      }
    }
    float largest = 0.0f;
#pragma unroll
    for (int c = 0; c < kCols; ++c) largest = fmaxf(largest, magnitude[c]);
    if (again || !__syncthreads_or(largest >= 2.0f)) break;
#pragma unroll
    for (int c = 0; c < kCols; ++c) atomicMax(&shared.magnitude[column + c], __float_as_uint(magnitude[c]));
    __syncthreads();
    for (int i = threadIdx.x; i < kWidth; i += kThreads)
      shared.scale[i] = kReflectorScale * power_of_two_scale(fmaxf(1.0f, __uint_as_float(shared.magnitude[i])));
    __syncthreads();
  }

  // Places are found again rather than kept in registers.
  const int own = ptx::recomputed(static_cast<int>(blockIdx.x));
  const int64_t own_matrix = own % matrices;
  tau += own_matrix * k + blocks.block[own / matrices].offset - first_column;
  float* const t = blocks.block[own / matrices].t + own_matrix * width * width;
  // H = I - tau·v·vᵀ stays what it is when v is scaled and tau by the square of the inverse.
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const float unscale = kReflectorScale * reciprocal_of_scale(shared.scale[i]);
    shared.tau[i] = tau[i] * unscale * unscale;
  }
  __syncthreads();
  const int side = coupling_pitch(width);
#pragma unroll 5
  for (int index = warp; index < kTiles<kWidth> * 4; index += kWarps) {
    int tile = index / 4, i = 0;
    for (; tile >= kCols - 2 * i; ++i) tile -= kCols - 2 * i;
    // Each pair of columns once.
    const int set = 2 * i + index % 4 / 2, other_set = 2 * i + tile, g = lane / 4, other_g = lane % 4 * 2 + index % 2;
    if (set > other_set || (set == other_set && g >= other_g)) continue;
    const int x = kCols * g + set, y = kCols * other_g + other_set, from = min(x, y), to = max(x, y);
    if (to < width)
      shared.coupling[to * side + from] =
          shared.tau[from] * (shared.sums[index / 4][index % 4][lane] / (kReflectorScale * kReflectorScale));
  }
  __syncthreads();
  t_from_coupling([&](int i) { return shared.tau[i]; }, shared.coupling, shared.scratch, width, t);
}

// The same for blocks of at most eight columns, whose few roundings do not average out: a thread takes whole rows, and
// VᵀV and T are float64 until T is written.
constexpr int kNarrow = 8;

__global__ void __launch_bounds__(kThreads)
    narrow_reflectors_kernel(const __grid_constant__ Blocks blocks, const float* h, const float* tau,
                             int64_t matrix_stride, int64_t row_stride, int m, int k, int first_column, int matrices) {
  __shared__ double sums[kWarps][32];
  __shared__ float scale[kNarrow];
  __shared__ unsigned magnitudes[kNarrow];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const ReflectorBlock& block = blocks.block[blockIdx.x / matrices];
  const int64_t matrix = blockIdx.x % matrices;
  const int width = static_cast<int>(block.width), rows = m - static_cast<int>(block.offset);
  h += matrix * matrix_stride + block.offset * (row_stride + 1);
  tau += matrix * k + block.offset - first_column;
  __half* const halves = block.halves + matrix * rows * 2 * kNarrow;

  if (threadIdx.x < kNarrow) {
    scale[threadIdx.x] = 1.0f;
    magnitudes[threadIdx.x] = 0;
  }
  __syncthreads();

  for (bool again = false;; again = true) {
    float magnitude[kNarrow] = {};
    double products[32] = {};  // of columns i < j, at j·(j - 1)/2 + i
    for (int row = threadIdx.x; row < rows; row += kThreads) {
      float v[kNarrow];
#pragma unroll
      for (int c = 0; c < kNarrow; ++c) {
        v[c] = c < width && row > c ? h[row * row_stride + c] : c < width && row == c ? 1.0f : 0.0f;
        magnitude[c] = fmaxf(magnitude[c], fabsf(v[c]));
        v[c] *= scale[c];
      }
      const auto split_from = [&](int c) {
        return split({v[c] * kReflectorScale, v[c + 1] * kReflectorScale, v[c + 2] * kReflectorScale,
                      v[c + 3] * kReflectorScale});
      };
      const SplitQuad left = split_from(0), right = split_from(4);
      uint4* const place = reinterpret_cast<uint4*>(halves + int64_t{row} * 2 * kNarrow);
      place[0] = {left.high.x, left.high.y, right.high.x, right.high.y};
      place[1] = {left.low.x, left.low.y, right.low.x, right.low.y};
#pragma unroll
      for (int j = 1; j < kNarrow; ++j) {
#pragma unroll
        for (int i = 0; i < j; ++i) products[j * (j - 1) / 2 + i] += double{v[i]} * v[j];
      }
    }
    sums[warp][lane] = transposed_sum(products, lane);
    float largest = 0.0f;
#pragma unroll
    for (int c = 0; c < kNarrow; ++c) largest = fmaxf(largest, magnitude[c]);
    if (!__syncthreads_or(largest >= 2.0f) || again) break;
#pragma unroll
    for (int c = 0; c < kNarrow; ++c) atomicMax(&magnitudes[c], __float_as_uint(magnitude[c]));
    __syncthreads();
    if (threadIdx.x < kNarrow)
      scale[threadIdx.x] = power_of_two_scale(fmaxf(1.0f, __uint_as_float(magnitudes[threadIdx.x])));
    __syncthreads();
  }

  // (I + diag(tau)·striu(VᵀV))·T = diag(tau), a column of T a lane. H = I - tau·v·vᵀ stays what it is when v is scaled
  // and tau by the square of the inverse.
  if (static_cast<int>(threadIdx.x) >= width) return;
  float* const column = block.t + matrix * width * width + lane;
  double t[kNarrow];
#pragma unroll
  for (int i = kNarrow - 1; i >= 0; --i) {
    if (i >= width) continue;
    const double unscale = reciprocal_of_scale(scale[i]), tau_i = tau[i] * (unscale * unscale);
    double sum = i == lane ? -1.0 : 0.0;
#pragma unroll
    for (int j = i + 1; j < kNarrow; ++j) {
      double product = 0.0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) product += sums[w][j * (j - 1) / 2 + i];
      if (j <= lane) sum += product * t[j];
    }
    t[i] = i <= lane ? -tau_i * sum : 0.0;
    column[i * width] = static_cast<float>(t[i]);
  }
}

constexpr int64_t kMaxGrid = 0x7fffffff;

}  // namespace

cudaError_t launch_reflectors(const ReflectorShape& shape, const std::vector<ReflectorBlock>& blocks, const float* h,
                              const float* tau, cudaStream_t stream) {
  const int64_t stride = shape.m * shape.n;
  for (size_t first = 0; first < blocks.size(); first += kMaxBlocks) {
    const int64_t count = std::min<int64_t>(kMaxBlocks, blocks.size() - first), matrices = kMaxGrid / count;
    int64_t widest = 0;
    for (int64_t i = 0; i < count; ++i) widest = std::max(widest, blocks[first + i].width);
    if (widest > kMaxReflectorsWidth) return cudaErrorInvalidValue;
    const auto kernel = widest <= kNarrow ? narrow_reflectors_kernel
                        : widest <= 32    ? reflectors_kernel<32>
                                          : reflectors_kernel<64>;
    for (int64_t batch = 0; batch < shape.batch; batch += matrices) {
      const int64_t left = std::min(shape.batch - batch, matrices);
      Blocks part{};
      for (int64_t i = 0; i < count; ++i) {
        const ReflectorBlock& block = part.block[i] = blocks[first + i];
        part.block[i].t += batch * block.width * block.width;
        part.block[i].halves += batch * (shape.m - block.offset) * 2 * reflector_pitch(block.width);
      }
      kernel<<<static_cast<unsigned>(left * count), kThreads, 0, stream>>>(
          part, h + batch * stride, tau + batch * shape.k, stride, shape.n, static_cast<int>(shape.m),
          static_cast<int>(shape.k), static_cast<int>(shape.first), static_cast<int>(left));
      if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace jaxqr
