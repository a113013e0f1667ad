// What couples two neighbouring block reflectors, for their update in one pass: T of both together, as halves.
#ifndef JAXQR_FFI_COUPLING_CUH_
#define JAXQR_FFI_COUPLING_CUH_

#include <cstdint>

#include "block_reflector.h"
#include "block_reflector_parts.cuh"

namespace jaxqr::update {

inline constexpr int kWidth = 64;  // of either, at most

// A matrix's, in floats: the halves of T₁, T₁₂ and T₂, [3][high, low][kWidth][kWidth], times a power of two; that
// power; and tickets of two launches, those of all columns or of the first ones, and of the others.
inline constexpr int kCouplingScale = 3 * kWidth * kWidth, kCouplingTickets = kCouplingScale + 1;
static_assert(kCouplingTickets + 2 <= kCouplingFloats && kCouplingFloats % 4 == 0);

__device__ __forceinline__ float coupling_t_scale(const float* coupling, int matrix) {
  return coupling[matrix * kCouplingFloats + kCouplingScale];
}

// T₁ transposed, T₂, and their product's first factor V₁ᵀ·V₂·T₂.
struct CouplingSquares {
  float t1[kWidth][kWidth + 4], t2[kWidth][kWidth + 4], product[kWidth][kWidth + 4];
};

// By all threads: what couples two block reflectors, from (V₁ᵀ·V₂)ᵀ times 1/unscale. `magnitude` is 0.
__device__ __forceinline__ void make_coupling(const float (&w)[kWidth][kStrip + 4], float unscale,
                                              CouplingSquares& squares, const float* t1, int width1, const float* t2,
                                              int width2, unsigned& magnitude, float* coupling) {
  float most = 0.0f;
  for (int i = threadIdx.x; i < kWidth * kWidth; i += kThreads) {
    const int row = i / kWidth, column = i % kWidth;
    const float x1 = row <= column && column < width1 ? t1[row * width1 + column] : 0.0f,
                x2 = row <= column && column < width2 ? t2[row * width2 + column] : 0.0f;
    squares.t1[column][row] = x1;
    squares.t2[row][column] = x2;
    most = fmaxf(most, fmaxf(fabsf(x1), fabsf(x2)));
  }
  barrier();
  // A thread makes 4×4 elements of the products, so that the zeros of T are skipped by whole warps.
  const auto quad = [](const float& x) { return *reinterpret_cast<const float4*>(&x); };
  float sums[4][4] = {};
  const auto add = [&](float4 x, float4 y) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(element(x, i), element(y, j), sums[i][j]);
    }
  };
  const int slow = threadIdx.x / (kWidth / 4) * 4, fast = threadIdx.x % (kWidth / 4) * 4;
  {
    const int row = fast, column = slow;
#pragma unroll 4
    for (int k = 0; k < column + 4; ++k) add(quad(w[k][row]), quad(squares.t2[k][column]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        squares.product[row + i][column + j] = sums[i][j] * -unscale;
        sums[i][j] = 0.0f;
      }
    }
  }
  barrier();
  const int row = slow, column = fast;
#pragma unroll 4
  for (int k = row; k < kWidth; ++k) add(quad(squares.t1[k][row]), quad(squares.product[k][column]));
#pragma unroll
  for (int i = 0; i < 16; ++i) most = fmaxf(most, fabsf(sums[i / 4][i % 4]));
  atomicMax(&magnitude, __float_as_uint(most));
  barrier();
  const float scale = product_of_scales(power_of_two_scale(__uint_as_float(magnitude)), kReflectorScale);
  __half* const halves = reinterpret_cast<__half*>(coupling);
  const auto store = [&](int block, int i, float4 x) {
    const SplitQuad parts = split({x.x * scale, x.y * scale, x.z * scale, x.w * scale});
    __half* const place = halves + (block * 2 * kWidth + row + i) * kWidth + column;
    *reinterpret_cast<uint2*>(place) = parts.high;
    *reinterpret_cast<uint2*>(place + kWidth * kWidth) = parts.low;
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto t1_at = [&](int j) { return squares.t1[column + j][row + i]; };
    store(0, i, {t1_at(0), t1_at(1), t1_at(2), t1_at(3)});
    store(1, i, {sums[i][0], sums[i][1], sums[i][2], sums[i][3]});
    store(2, i, quad(squares.t2[row + i][column]));
  }
  if (threadIdx.x == 0) {
    coupling[kCouplingScale] = scale;
    int* const tickets = reinterpret_cast<int*>(coupling + kCouplingTickets);
    tickets[0] = tickets[1] = 0;
  }
}

}  // namespace jaxqr::update

#endif  // JAXQR_FFI_COUPLING_CUH_
