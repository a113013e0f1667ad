// Narrow-regime factorization: whole matrices of up to four columns and no fewer rows, each by part of a warp, a warp,
// or a CTA, all of it in registers. A is read once and H written once, which is what the time goes into.
//
// Ownership. Thread t of a matrix's kThreads holds the rows t, t + kThreads, … of all columns, so that neighbouring
// threads read and write neighbouring rows. Pivot k is in the first register of thread k.
//
// A reflector takes one reduction of the raw dot products x·c of its column with itself and the later ones, from which
// every thread makes the same scalars (LAPACK slarfg, slarf):
//     beta = -sign(alpha)·sqrt(alpha² + Σx²),  v = x/(alpha - beta),  c ← c - tau·(c_k + Σv·c)·v.
//
// Synchronization. Within a warp shuffles; between the warps of a matrix one barrier a reduction, with two buffers: one
// is written again past the barrier of the reduction that used the other. All threads of a matrix pass the same
// barriers, whatever the data are: what decides on a rescue has the same bits in all of them.
//
// Range: columns are scaled at load by their own exact powers of two. Where Σx² < 2^-80, x is scaled again; an exactly
// zero tail gives tau = 0 and keeps alpha. Where Σx² is not finite, alpha counts as NaN: the column becomes NaN from
// its pivot down, and so do all later ones.
#ifndef JAXQR_FFI_NARROW_KERNEL_CUH_
#define JAXQR_FFI_NARROW_KERNEL_CUH_

#include <cstdint>

#include "reflector.cuh"
#include "warp.cuh"

namespace jaxqr {

// Warps of a CTA.
template <int kWarps>
inline constexpr int kNarrowWarps = kWarps > 1 ? kWarps : 4;

// A row of so many columns at `place`, which rows of all matrices make a multiple of its size where that is a power of
// two.
template <int kCols>
__device__ __forceinline__ void load_narrow_row(const float* place, float (&row)[kCols]) {
  if constexpr (kCols == 2) {
    const float2 pair = *reinterpret_cast<const float2*>(place);
    row[0] = pair.x, row[1] = pair.y;
  } else if constexpr (kCols == 4) {
    const float4 quad = *reinterpret_cast<const float4*>(place);
    row[0] = quad.x, row[1] = quad.y, row[2] = quad.z, row[3] = quad.w;
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) row[c] = place[c];
  }
}
template <int kCols>
__device__ __forceinline__ void store_narrow_row(float* place, const float (&row)[kCols]) {
  if constexpr (kCols == 2) {
    *reinterpret_cast<float2*>(place) = {row[0], row[1]};
  } else if constexpr (kCols == 4) {
    *reinterpret_cast<float4*>(place) = {row[0], row[1], row[2], row[3]};
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) place[c] = row[c];
  }
}

// kLanes of each of kWarps warps have a matrix, and each kRows rows of it.
template <int kCols, int kLanes, int kWarps, int kRows>
__global__ void __launch_bounds__(32 * kNarrowWarps<kWarps>,
                                  kCols* kRows <= 32 ? 32 / kNarrowWarps<kWarps> : 16 / kNarrowWarps<kWarps>)
    narrow_kernel(const float* src, float* h, float* tau_out, int64_t batch, int m) {
  constexpr int kThreads = kLanes * kWarps, kMatrices = 32 * kNarrowWarps<kWarps> / kThreads;  // of a CTA
  constexpr float kLargest = 0x1.fffffep127f;
  static_assert(kLanes >= kCols && (kWarps == 1 || kLanes == 32), "pivots in one warp; whole warps");

  // The warps' parts of a reduction, and the pivot row.
  __shared__ float parts[kWarps > 1 ? 2 : 1][kWarps][kCols], pivots[kWarps > 1 ? 2 : 1][kCols];
  [[maybe_unused]] int buffer = 0;

  const int thread = threadIdx.x % kThreads, lane = threadIdx.x % 32;
  const int64_t matrix = int64_t{blockIdx.x} * kMatrices + threadIdx.x / kThreads;
  const int rows = matrix < batch ? m : 0;
  const int64_t corner = matrix * m * kCols;

  // Of the columns from `first` on, over the threads of a matrix: the same bits in all of them.
  const auto reduce = [&](float (&values)[kCols], int first, auto combine) {
#pragma unroll
    for (int c = first; c < kCols; ++c) {
#pragma unroll
      for (int mask = 1; mask < kLanes; mask *= 2)
        values[c] = combine(values[c], __shfl_xor_sync(kFullWarp, values[c], mask));
    }
    if constexpr (kWarps > 1) {
#pragma unroll
      for (int c = first; c < kCols; ++c) {
        if (lane == 0) parts[buffer][threadIdx.x / 32][c] = values[c];
      }
      __syncthreads();
#pragma unroll
      for (int c = first; c < kCols; ++c) {
        values[c] = parts[buffer][lane % kWarps][c];
#pragma unroll
        for (int mask = 1; mask < kWarps; mask *= 2)
          values[c] = combine(values[c], __shfl_xor_sync(kFullWarp, values[c], mask));
      }
    }
  };
  const auto larger = [](float x, float y) { return fmaxf(x, y); };
  const auto sum = [](float x, float y) { return x + y; };

  float a[kCols][kRows], factor[kCols];  // factor: what R's part of a column is times in H
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float row[kCols] = {};
    if (thread + r * kThreads < rows) load_narrow_row(src + corner + (thread + r * kThreads) * kCols, row);
#pragma unroll
    for (int c = 0; c < kCols; ++c) a[c][r] = row[c];
  }
  {
    float largest[kCols] = {};
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) largest[c] = fmaxf(largest[c], fabsf(a[c][r]));
    }
    reduce(largest, 0, larger);
    buffer ^= kWarps > 1;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const float scale = power_of_two_scale(largest[c]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[c][r] *= scale;
      factor[c] = reciprocal_of_scale(scale);
    }
  }

#pragma unroll
  for (int k = 0; k < kCols; ++k) {
    float tau = 0.0f;
    if (k < m - 1) {  // a last row has no tail
      const bool below = thread > k;
      float pivot[kCols], sums[kCols];
      const auto tail = [&](int r) { return r > 0 || below ? a[k][r] : 0.0f; };
      const auto sum_up = [&] {
        if (kWarps > 1 && thread == k) {
#pragma unroll
          for (int c = k; c < kCols; ++c) pivots[buffer][c] = a[c][0];
        }
#pragma unroll
        for (int c = k; c < kCols; ++c) {
          float chains[2] = {};
#pragma unroll
          for (int r = 0; r < kRows; ++r) chains[r % 2] = fmaf(tail(r), a[c][r], chains[r % 2]);
          sums[c] = chains[0] + chains[1];
        }
        reduce(sums, k, sum);
#pragma unroll
        for (int c = k; c < kCols; ++c)
          pivot[c] = kWarps > 1 ? pivots[buffer][c] : __shfl_sync(kFullWarp, a[c][0], k, kLanes);
        buffer ^= kWarps > 1;
      };
      sum_up();

      float rescale = 1.0f;
      bool zero_tail = false;
      const bool ordinary = sums[k] >= 0x1p-80f && sums[k] <= kLargest;
      // The other matrices of a warp come along and get the same bits again.
      if (!(kWarps > 1 ? ordinary : __all_sync(kFullWarp, ordinary))) {
        const bool finite = sums[k] <= kLargest;
        float largest[kCols] = {};
#pragma unroll
        for (int r = 0; r < kRows; ++r) largest[k] = fmaxf(largest[k], fabsf(tail(r)));
#pragma unroll
        for (int c = k + 1; c < kCols; ++c) largest[c] = 0.0f;
        reduce(largest, k, larger);
        buffer ^= kWarps > 1;
        zero_tail = finite && largest[k] == 0.0f;
        if (finite && !ordinary && !zero_tail) rescale = power_of_two_scale(fmaxf(largest[k], fabsf(pivot[k])));
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r > 0 || thread >= k) a[k][r] = finite ? a[k][r] * rescale : 0.0f;
        }
        sum_up();
        if (!finite) pivot[k] = __int_as_float(0x7fc00000);
        if (zero_tail) pivot[k] = 1.0f;  // any but 0, so that the scalars are finite
      }
      const Reflector reflector = make_reflector(pivot[k], sums[k]);
      tau = zero_tail ? 0.0f : reflector.tau;

#pragma unroll
      for (int c = k + 1; c < kCols; ++c) {
        const float projection = fmaf(reflector.inverse, sums[c], pivot[c]);
        const float coefficient = reflector.neg_inverse_beta * projection;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r > 0 || below) a[c][r] = fmaf(-coefficient, a[k][r], a[c][r]);
        }
        if (thread == k) a[c][0] = fmaf(-tau, projection, pivot[c]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r > 0 || below) a[k][r] *= reflector.inverse;
      }
      if (thread == k && !zero_tail) a[k][0] = reflector.beta * reciprocal_of_scale(rescale);
    }
    if (thread == k && rows > 0) tau_out[matrix * kCols + k] = tau;
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float row[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c) row[c] = r == 0 && thread <= c ? a[c][0] * factor[c] : a[c][r];
    if (thread + r * kThreads < rows) store_narrow_row(h + corner + (thread + r * kThreads) * kCols, row);
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_NARROW_KERNEL_CUH_
