// Block reflectors of a factorization's compact form: V as pairs of halves and T, one CTA a block of one matrix, or
// where these are few a cluster of CTAs that share its rows.
//
// A warp takes strips of sixteen rows, which it splits into halves (mma.cuh), writes out, and multiplies into its part
// of VᵀV by the tensor cores. Lane (g, t) = 4·g + t holds kCols neighbouring columns from kCols·g on of the rows 2·t,
// 2·t + 1 and those 8 below: the product's index 8·j + g stands for column kCols·g + j, so that a lane's elements are
// fragments as they are, on the left as on the right. Of the 16×8 tiles of this symmetric product only those with j ≥ i
// are made. T of smooth matrices, whose columns are nearly parallel, multiplies every error of VᵀV by hundreds, and
// those of sums that only grow go one way: so each strip's product, of all four pairs of halves, leaves the tensor
// cores' accumulators, which truncate, and is added with proper rounding, and every kSumStrips strips the warps' sums
// are added. In a cluster every CTA adds a part of all CTAs' sums, in the order of their ranks, and the first makes T.
//
// Every sum has one order, and no loop's count depends on the data, with one exception: a block with entries of 2 and
// more, which LAPACK makes not, is streamed once more with its columns scaled.
#include <algorithm>

#include "cluster_ptx.cuh"
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
constexpr int kTurnRows = kWarps * kStripRows;  // that a CTA has in work at a time
constexpr int kMaxBlocks = 64;                  // of a launch
constexpr int kMaxShares = 16;                  // the largest cluster
constexpr int kPortableShares = 8;              // that every device with clusters takes without being asked
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kClusters = true;
#else
constexpr bool kClusters = false;
#endif

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

// The product's accumulators, a lane's four of a tile at a time.
template <int kWidth>
constexpr int kQuads = kTiles<kWidth> * 32;

template <int kWidth>
struct __align__(16) Shared {
  float4 sums[kQuads<kWidth>];
  union {
    float4 parts[kWarps - 1][kQuads<kWidth>];  // what the other warps add
    float squares[kWidth > 32 ? 2 : 1][kWidth * kWidth];
  };
  float scale[kWidth], tau[kWidth];
  unsigned magnitude[kWidth];  // of V's columns, as bits, which order like the values
  float large;                 // whether one is 2 and more
};

__device__ __forceinline__ __half2 halves_of(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }

__device__ __forceinline__ void add(float4& sum, const float4& part) {
  sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
}

template <int kWidth, bool kShared>
__global__ void __launch_bounds__(kThreads, kWidth == 64 ? 2 : 3)
    reflectors_kernel(const __grid_constant__ Blocks blocks, const float* h, const float* tau, int64_t matrix_stride,
                      int64_t row_stride, int m, int k, int first_column) {
  constexpr int kCols = kWidth / 8;
  constexpr bool kInCluster = kShared && kClusters;
  __shared__ Shared<kWidth> shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = kInCluster ? blockIdx.y : 0, shares = kInCluster ? gridDim.y : 1;  // of the cluster

  // The matrices of the first block, whose V are the highest, come first.
  const ReflectorBlock& block = blocks.block[blockIdx.z];
  const int64_t matrix = blockIdx.x;
  const int width = static_cast<int>(block.width), rows = m - static_cast<int>(block.offset);
  const int pitch = static_cast<int>(reflector_pitch(width));
  const int column = lane / 4 * kCols;  // this lane's first
  h += matrix * matrix_stride + block.offset * (row_stride + 1) + column;
  __half* const halves = block.halves + matrix * rows * 2 * pitch + column;
  // Whether quads are 16-byte aligned and wholly inside or outside.
  const bool vectors = (row_stride | width) % 4 == 0 && reinterpret_cast<uintptr_t>(h) % sizeof(float4) == 0;

  const auto row_of = [](int i) { return i / 2 * 8 + i % 2; };  // of a lane's four in a strip
  int row;                                                      // the first
  float v[4][kCols];                                            // of the next strip
  const auto load = [&](int first) {
    row = first;
    const float* const place = h + row * row_stride;
    if (vectors) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < kCols; c += 4) {
          float4 quad = {};
          if (row + row_of(i) < rows && column + c < width)
            quad = *reinterpret_cast<const float4*>(place + row_of(i) * row_stride + c);
          v[i][c] = quad.x;
          v[i][c + 1] = quad.y;
          v[i][c + 2] = quad.z;
          v[i][c + 3] = quad.w;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int count = row + row_of(i) < rows ? width - column : 0;
#pragma unroll
        for (int c = 0; c < kCols; ++c) v[i][c] = c < count ? place[row_of(i) * row_stride + c] : 0.0f;
      }
    }
  };
  const auto mask = [&] {
    if (row >= kWidth) return;  // all of the warp's, or none, are below the diagonal
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const int below = row + row_of(i) - column - c;
        v[i][c] = below > 0 ? v[i][c] : below == 0 && column + c < width ? 1.0f : 0.0f;
      }
    }
  };
  const auto first_row = [&] { return rank * kTurnRows + warp * kStripRows + lane % 4 * 2; };
  const float own_tau =
      static_cast<int>(threadIdx.x) < width ? tau[matrix * k + block.offset - first_column + threadIdx.x] : 0.0f;
  load(first_row());
  if (threadIdx.x < kWidth) {
    shared.scale[threadIdx.x] = kReflectorScale;
    shared.magnitude[threadIdx.x] = 0;
    shared.tau[threadIdx.x] = own_tau;
  }

  for (bool again = false;; again = true) {
    __half2 largest = {};  // of the high parts
    float acc[kTiles<kWidth>][4] = {};
    __syncthreads();
    const int turns = (rows + kTurnRows * shares - 1) / (kTurnRows * shares);
    for (int turn = 0; turn < turns; ++turn) {
      mask();
      uint32_t parts[2][4][kCols / 2];  // high and low parts of pairs of columns
#pragma unroll
      for (int c = 0; c < kCols; c += 4) {
        const float4 scale = *reinterpret_cast<const float4*>(&shared.scale[column + c]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const SplitQuad quad =
              split({v[i][c] * scale.x, v[i][c + 1] * scale.y, v[i][c + 2] * scale.z, v[i][c + 3] * scale.w});
          largest = __hmax2(largest, __hmax2(__habs2(halves_of(quad.high.x)), __habs2(halves_of(quad.high.y))));
          parts[0][i][c / 2] = quad.high.x;
          parts[0][i][c / 2 + 1] = quad.high.y;
          parts[1][i][c / 2] = quad.low.x;
          parts[1][i][c / 2 + 1] = quad.low.y;
        }
      }
      if (column < pitch) {
        const int pitch_here = ptx::recomputed(pitch);  // no multiples of it kept in registers
        __half* const place = halves + 2 * int64_t{row} * pitch_here;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            if (row + row_of(i) >= rows) continue;
            const uint32_t (&words)[kCols / 2] = parts[part][i];
            __half* const to = place + (2 * row_of(i) + part) * pitch_here;
            // In one store, which the compiler would take apart.
            if constexpr (kCols == 8)
              __stwb(reinterpret_cast<uint4*>(to), uint4{words[0], words[1], words[2], words[3]});
            else
              __stwb(reinterpret_cast<uint2*>(to), uint2{words[0], words[1]});
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
      if (turn + 1 < turns) load(row + kTurnRows * shares);
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
      const bool last = turn + 1 == turns;
      if (last || (turn + 1) % kSumStrips == 0) {
        float4* const place = (warp == 0 ? shared.sums : shared.parts[warp - 1]) + lane;
        const bool adds = warp == 0 && turn >= kSumStrips;
#pragma unroll
        for (int tile = 0; tile < kTiles<kWidth>; ++tile) {
          float4 sum = {acc[tile][0], acc[tile][1], acc[tile][2], acc[tile][3]};
          if (adds) add(sum, place[32 * tile]);
          place[32 * tile] = sum;
#pragma unroll
          for (int q = 0; q < 4; ++q) acc[tile][q] = 0.0f;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < kQuads<kWidth>; i += kThreads) {
          float4 sum = shared.sums[i];
#pragma unroll
          for (int part = 0; part < kWarps - 1; ++part) add(sum, shared.parts[part][i]);
          shared.sums[i] = sum;
        }
        if (!last) __syncthreads();
      }
    }
    bool large = __syncthreads_or(fmaxf(__low2float(largest), __high2float(largest)) >= 2.0f * kReflectorScale);
    if constexpr (kInCluster) {
      if (threadIdx.x == 0) shared.large = large ? 1.0f : 0.0f;
      ptx::cluster_arrive();
      ptx::cluster_wait();
      const uint32_t place = ptx::shared_address(&shared.large);
      large = __any_sync(kFullWarp, lane < shares && ptx::load_float_from_cluster(ptx::map_to_rank(place, lane)) > 0);
    }
    if (again || !large) break;
    float magnitude[kCols] = {};
    for (int turn = 0; turn < turns; ++turn) {
      load(first_row() + turn * kTurnRows * shares);
      mask();
#pragma unroll
      for (int i = 0; i < 4 * kCols; ++i)
        magnitude[i % kCols] = fmaxf(magnitude[i % kCols], fabsf(v[i / kCols][i % kCols]));
    }
#pragma unroll
    for (int c = 0; c < kCols; ++c) atomicMax(&shared.magnitude[column + c], __float_as_uint(magnitude[c]));
    if constexpr (kInCluster) {
      ptx::cluster_arrive();
      ptx::cluster_wait();
    } else {
      __syncthreads();
    }
    if (threadIdx.x < kWidth) {
      float whole = fmaxf(1.0f, __uint_as_float(shared.magnitude[threadIdx.x]));
      if constexpr (kInCluster) {
        const uint32_t place = ptx::shared_address(&shared.magnitude[threadIdx.x]);
        for (int peer = 0; peer < shares; ++peer)
          whole = fmaxf(whole, ptx::load_float_from_cluster(ptx::map_to_rank(place, peer)));
      }
      shared.scale[threadIdx.x] = kReflectorScale * power_of_two_scale(whole);
    }
    load(first_row());
  }

  if constexpr (kInCluster) {
    for (int i = rank * kThreads + threadIdx.x; i < kQuads<kWidth>; i += kThreads * shares) {
      const uint32_t place = ptx::shared_address(&shared.sums[i]);
      float4 parts[kMaxShares];
#pragma unroll
      for (int peer = 0; peer < kMaxShares; ++peer) {
        parts[peer] = {};
        if (peer < shares) parts[peer] = ptx::load_from_cluster(ptx::map_to_rank(place, peer));
      }
#pragma unroll
      for (int peer = 1; peer < kMaxShares; ++peer) add(parts[0], parts[peer]);
      ptx::store_to_cluster(ptx::map_to_rank(place, 0), parts[0]);
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
    if (rank > 0) return;
  }

  // H = I - tau·v·vᵀ stays what it is when v is scaled and tau by the square of the inverse.
  if (threadIdx.x < kWidth) {
    const float unscale = kReflectorScale * reciprocal_of_scale(shared.scale[threadIdx.x]);
    shared.tau[threadIdx.x] *= unscale * unscale;
  }
  __syncthreads();
  float* const coupling = shared.squares[0];
  for (int index = threadIdx.x; index < kQuads<kWidth>; index += kThreads) {
    int tile = index / 32, i = 0;
    for (; tile >= kCols - 2 * i; ++i) tile -= kCols - 2 * i;
    const int g = lane / 4, other_set = 2 * i + tile;
    const float4 quad = shared.sums[index];
    const float sums[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int set = 2 * i + q / 2, other_g = lane % 4 * 2 + q % 2;
      const int x = kCols * g + set, y = kCols * other_g + other_set, from = min(x, y), to = max(x, y);
      // Each pair of columns once, also those of no columns.
      if (set > other_set || (set == other_set && g >= other_g)) continue;
      coupling[to * kWidth + from] = shared.tau[from] * (sums[q] / (kReflectorScale * kReflectorScale));
    }
  }
  __syncthreads();
  // Places are found again rather than kept in registers.
  float* const t = blocks.block[blockIdx.z].t + ptx::recomputed(int64_t{blockIdx.x}) * (width * width);
  t_from_coupling<kWidth>(shared.tau, coupling, shared.squares[kWidth > 32], width, t);
}

// The same for blocks of at most eight columns, whose few roundings do not average out: a thread takes whole rows, and
// VᵀV and T are float64 until T is written.
constexpr int kNarrow = kNarrowReflectors;

__global__ void __launch_bounds__(kThreads, 5)
    narrow_reflectors_kernel(const __grid_constant__ Blocks blocks, const float* h, const float* tau,
                             int64_t matrix_stride, int64_t row_stride, int m, int k, int first_column) {
  __shared__ double sums[kWarps][32];
  __shared__ float scale[kNarrow];
  __shared__ unsigned magnitudes[kNarrow];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const ReflectorBlock& block = blocks.block[blockIdx.z];
  const int64_t matrix = blockIdx.x;
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

// Clusters of kMaxShares, for which there are few places, take blocks of so many rows that a panel kernel needs as many
// CTAs, if they are no more than this.
constexpr int64_t kMostRows = 4160, kFewUnits = 4;

// How many CTAs share the rows of each of `units` blocks, the highest of `rows`: as many as take the least time, by the
// shape and the number of multiprocessors only.
cudaError_t plan_shares(int64_t units, int64_t rows, int64_t* shares) {
  *shares = 1;
  int device, processors, clusters;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  if (error != cudaSuccess || !clusters) return error;
  const int64_t turns = (rows + kTurnRows - 1) / kTurnRows;
  // In the time of a turn of a CTA alone on a multiprocessor: what it takes beside its turns, in clusters of 1, 2, 4
  // and 8. Larger clusters leave some multiprocessors empty, whose groups they do not fit, so that some come two to a
  // multiprocessor before all are taken.
  constexpr double kOverhead[] = {6.7, 8.1, 8.6, 9.1}, kTogether = 1.8;
  double least = 0;
  for (int i = 0; i < 4 && (int64_t{1} << i) <= std::min<int64_t>(turns, kPortableShares); ++i) {
    const int64_t count = int64_t{1} << i, places = count > 2 ? 2 * processors * 10 / 11 : 2 * processors,
                  room = count > 2 ? processors * 3 / 4 : processors, waves = (units * count + places - 1) / places;
    const double own = static_cast<double>((turns + count - 1) / count) * (units * count > room ? kTogether : 1),
                 time = static_cast<double>(waves) * (own + kOverhead[i]);
    if (count == 1 || time < 0.95 * least) {
      *shares = count;
      least = time;
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_reflectors(const ReflectorShape& shape, const std::vector<ReflectorBlock>& blocks, const float* h,
                              const float* tau, cudaStream_t stream) {
  const int64_t stride = shape.m * shape.n;
  for (size_t first = 0; first < blocks.size(); first += kMaxBlocks) {
    const int64_t count = std::min<int64_t>(kMaxBlocks, blocks.size() - first);
    int64_t widest = 0, highest = 0, shares = 1;
    for (int64_t i = 0; i < count; ++i) {
      widest = std::max(widest, blocks[first + i].width);
      highest = std::max(highest, shape.m - blocks[first + i].offset);
    }
    if (widest > kMaxReflectorsWidth) return cudaErrorInvalidValue;
    if (widest > kNarrow) {
      const cudaError_t error = plan_shares(shape.batch * count, highest, &shares);
      if (error != cudaSuccess) return error;
    }
    const auto kernel = widest <= kNarrow ? narrow_reflectors_kernel
                        : widest <= 32    ? (shares > 1 ? reflectors_kernel<32, true> : reflectors_kernel<32, false>)
                                          : (shares > 1 ? reflectors_kernel<64, true> : reflectors_kernel<64, false>);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, static_cast<unsigned>(shares), 1};
    cudaLaunchConfig_t config = {};
    config.blockDim = kThreads;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = shares > 1 ? 1 : 0;
    if (shares == kPortableShares && highest > kMostRows && shape.batch * count <= kFewUnits) {
      cluster.val.clusterDim.y = kMaxShares;
      config.gridDim = {static_cast<unsigned>(shape.batch * count), kMaxShares};
      int places = 0;
      if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
          cudaOccupancyMaxActiveClusters(&places, kernel, &config) == cudaSuccess && places >= shape.batch * count)
        shares = kMaxShares;
      static_cast<void>(cudaGetLastError());
      cluster.val.clusterDim.y = static_cast<unsigned>(shares);
    }
    for (int64_t batch = 0; batch < shape.batch; batch += kMaxGrid) {
      const int64_t left = std::min(shape.batch - batch, kMaxGrid);
      Blocks part{};
      for (int64_t i = 0; i < count; ++i) {
        const ReflectorBlock& block = part.block[i] = blocks[first + i];
        part.block[i].t += batch * block.width * block.width;
        part.block[i].halves += batch * (shape.m - block.offset) * 2 * reflector_pitch(block.width);
      }
      config.gridDim = {static_cast<unsigned>(left), static_cast<unsigned>(shares), static_cast<unsigned>(count)};
      if (const cudaError_t error =
              cudaLaunchKernelEx(&config, kernel, part, h + batch * stride, tau + batch * shape.k, stride, shape.n,
                                 static_cast<int>(shape.m), static_cast<int>(shape.k), static_cast<int>(shape.first));
          error != cudaSuccess)
        return error;
    }
  }
  return cudaSuccess;
}

}  // namespace jaxqr
