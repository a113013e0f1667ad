// Strips of reflectors in a warp: V's rows as pairs of halves (mma.cuh), and their part of VᵀV by the tensor cores.
//
// A strip has sixteen rows. Lane (g, t) = 4·g + t holds kCols neighbouring columns from kCols·g on of four of them: the
// product's index 8·j + g stands for column kCols·g + j, so that a lane's elements are fragments as they are, on the
// left as on the right. Of the 16×8 tiles of this symmetric product only those with j ≥ i are made.
//
// T of smooth matrices, whose columns are nearly parallel, multiplies every error of VᵀV by hundreds, and those of sums
// that only grow go one way: so each strip's product, of all four pairs of halves, leaves the tensor cores'
// accumulators, which truncate, and is added with proper rounding, by a warp for at most kSumStrips strips.
#ifndef JAXQR_FFI_REFLECTORS_CUH_
#define JAXQR_FFI_REFLECTORS_CUH_

#include <cstdint>

#include "mma.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"

namespace jaxqr {

inline constexpr int kStripRows = 16, kSumStrips = 16;

// Two neighbours of a lane's rows are kRowStep apart, which counts for nothing in the product.
template <int kWidth, int kRowStep = 1>
struct ReflectorStrip {
  static constexpr int kCols = kWidth / 8;
  // Tiles of the product: 16 rows of the sets 2·i and 2·i + 1 times the eight columns of set j ≥ 2·i.
  static constexpr int kTiles = kWidth / 16 * (kWidth / 16 + 1);
  // Values of the product's accumulators, four lanes' at a time.
  static constexpr int kQuads = kTiles * 32;

  using Columns = float[4][kCols];
  using Parts = uint32_t[2][4][kCols / 2];  // high and low parts of pairs of columns
  using Fragments = uint32_t[2][kCols][2];  // of pairs of rows
  using Accumulators = float[kTiles][4];

  // The rows of a lane: the first, and how much further down the others are.
  static __device__ __forceinline__ int first_row(int lane) {
    return lane % 4 / kRowStep * 2 * kRowStep + lane % kRowStep;
  }
  static __device__ __forceinline__ constexpr int further(int i) { return i / 2 * 8 + i % 2 * kRowStep; }

  // From rows of H, the first of them `row`, to V's: its unit diagonal, and zeros above and right of `width`.
  static __device__ __forceinline__ void mask(Columns& v, int row, int column, int width) {
    if (row >= kWidth) return;  // all of the warp's, or none, are below the diagonal
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const int below = row + further(i) - column - c;
        v[i][c] = below > 0 ? v[i][c] : below == 0 && column + c < width ? 1.0f : 0.0f;
      }
    }
  }

  // V times scale_of(c), of the quad of columns from a lane's column c on. Each quad's parts are shown to `see`.
  template <typename ScaleOf, typename See>
  static __device__ __forceinline__ void split(Parts& parts, const Columns& v, ScaleOf scale_of, See see) {
#pragma unroll
    for (int c = 0; c < kCols; c += 4) {
      const float4 scale = scale_of(c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const SplitQuad quad =
            jaxqr::split({v[i][c] * scale.x, v[i][c + 1] * scale.y, v[i][c + 2] * scale.z, v[i][c + 3] * scale.w});
        see(quad);
        parts[0][i][c / 2] = quad.high.x;
        parts[0][i][c / 2 + 1] = quad.high.y;
        parts[1][i][c / 2] = quad.low.x;
        parts[1][i][c / 2 + 1] = quad.low.y;
      }
    }
  }

  // Writes a lane's parts from `halves` on, the place of its first row and column, as far as there are `rows`.
  static __device__ __forceinline__ void store(__half* halves, int pitch, const Parts& parts, int row, int rows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if (row + further(i) >= rows) continue;
        const uint32_t (&words)[kCols / 2] = parts[part][i];
        __half* const place = halves + (2 * further(i) + part) * pitch;
        if constexpr (kCols == 8)
          ptx::store_vector(place, uint4{words[0], words[1], words[2], words[3]});
        else
          ptx::store_vector(place, uint2{words[0], words[1]});
      }
    }
  }

  // The same fragments twice, to the compiler's knowledge not the same: those on the left lie in registers by fours,
  // those on the right by pairs, and what is kept once is moved before every product.
  static __device__ __forceinline__ void pair_rows(Fragments& left, Fragments& right, const Parts& parts) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t upper = parts[part][2 * i][c / 2], lower = parts[part][2 * i + 1][c / 2];
          left[part][c][i] = __byte_perm(upper, lower, c % 2 ? 0x7632 : 0x5410);
          right[part][c][i] = __byte_perm(lower, upper, c % 2 ? 0x3276 : 0x1054);
        }
      }
    }
  }

  // acc += VᵀV of a strip, up to kTogether neighbouring tiles at a time, whose products need not wait for each other.
  template <int kTogether>
  static __device__ __forceinline__ void add_product(Accumulators& acc, const Fragments& lefts,
                                                     const Fragments& rights) {
    constexpr int kSets = kWidth / 8;
    int tile = 0;
#pragma unroll
    for (int i = 0; i < kSets / 2; ++i) {
#pragma unroll
      for (int first = 2 * i; first < kSets; first += kTogether) {
        float sums[kTogether][4] = {};
#pragma unroll
        for (int product = 0; product < 4; ++product) {  // low·low, low·high, high·low, high·high
          const auto& left = lefts[product < 2];
          const auto& right = rights[product % 2 == 0];
          const uint32_t a[4] = {left[2 * i][0], left[2 * i + 1][0], left[2 * i][1], left[2 * i + 1][1]};
#pragma unroll
          for (int j = first; j < min(first + kTogether, kSets); ++j)
            ptx::mma_m16n8k16(sums[j - first], a, right[j][0], right[j][1]);
        }
#pragma unroll
        for (int j = first; j < min(first + kTogether, kSets); ++j, ++tile) {
#pragma unroll
          for (int q = 0; q < 4; ++q) acc[tile][q] += sums[j - first][q];
        }
      }
    }
  }

  // What t_from_coupling takes, from sum_of(quad) of all strips. Called by all threads.
  template <typename SumOf>
  static __device__ __forceinline__ void couple(float* coupling, const float* tau, SumOf sum_of) {
    for (int index = threadIdx.x; index < kQuads; index += blockDim.x) {
      int tile = index / 32, i = 0;
      for (; tile >= kCols - 2 * i; ++i) tile -= kCols - 2 * i;
      const int q = index / 8 % 4, g = index % 8, set = 2 * i + q / 2, other_set = 2 * i + tile, x = kCols * g + set;
      const float4 quad = sum_of(index);
      const float sums[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int other_g = 2 * t + q % 2, y = kCols * other_g + other_set, from = min(x, y), to = max(x, y);
        // Each pair of columns once, also those of no columns.
        if (set > other_set || (set == other_set && g >= other_g)) continue;
        coupling[to * kWidth + from] = tau[from] * (sums[t] / (kReflectorScale * kReflectorScale));
      }
    }
  }
};

__device__ __forceinline__ void add(float4& sum, const float4& part) {
  sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTORS_CUH_
