// The other columns of wide matrices with more rows than a warp has lanes: the reflectors of the first m columns, which
// another kernel has made, are applied to them one after the other.
//
// Ownership. A CTA has one matrix's reflectors in shared memory, and a chunk of the columns that are left; a lane holds
// kCols of these in registers, all rows. So nothing is exchanged after the reflectors are there.
//
// Range. Columns are scaled as in the panel kernels, and R's part divided at store. Where tau is 0 nothing changes,
// also not Inf or NaN.
//
// Resources. (kCols + 1)·kRows registers a lane for columns and a reflector; kRows·(kRows + 5) floats of shared memory.
#ifndef JAXQR_FFI_WIDE_APPLY_KERNEL_CUH_
#define JAXQR_FFI_WIDE_APPLY_KERNEL_CUH_

#include <cstdint>

#include "ptx.cuh"
#include "warp.cuh"

namespace jaxqr {

inline constexpr int kWideApplyWarps = 4;

// Columns of a CTA.
template <int kCols>
inline constexpr int kWideApplyColumns = 32 * kWideApplyWarps * kCols;

// CTA i has chunk i % chunks of matrix i / chunks. H's first m columns are there, and tau[batch, m].
template <int kRows, int kCols>
__global__ void __launch_bounds__(32 * kWideApplyWarps, 2)
    wide_apply_kernel(const float* src, float* h, const float* tau, int m, int n, int chunks) {
  constexpr int kPitch = kRows + 4;  // float4 aligned
  constexpr int kStageRows = 16;     // rows above the pivots go out of use in steps of so many
  constexpr int kChains = 4;         // of a dot product
  __shared__ __align__(16) float reflectors[kRows * kPitch + kRows];
  float* const taus = reflectors + kRows * kPitch;

  const int64_t matrix = static_cast<int>(blockIdx.x) / chunks, corner = matrix * (int64_t{m} * n);
  const int chunk = static_cast<int>(blockIdx.x) % chunks, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = warp; row < kRows; row += kWideApplyWarps) {
    for (int k = lane; k < kRows; k += 32) {
      const float below = k < row && row < m ? h[corner + int64_t{row} * n + k] : 0.0f;
      reflectors[k * kPitch + row] = k == row ? 1.0f : below;
    }
  }
  for (int k = threadIdx.x; k < kRows; k += blockDim.x) taus[k] = k < m ? tau[matrix * m + k] : 0.0f;
  __syncthreads();

  const int column = m + chunk * kWideApplyColumns<kCols> + warp * (32 * kCols) + lane;
  if (column - lane >= n) return;
  const int64_t row_bytes = int64_t{4} * n;
  float a[kCols][kRows], unscale[kCols];
  {
    int64_t source = ptx::global_address(src + corner + column);
    int limit[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c) limit[c] = column + 32 * c < n ? m : 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) a[c][r] = ptx::load_global(source + 128 * c, r < limit[c]);
      source = ptx::recomputed(source + row_bytes);
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    float largest[4] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) largest[r % 4] = fmaxf(largest[r % 4], fabsf(a[c][r]));
    const float scale = power_of_two_scale(fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3])));
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[c][r] *= scale;
    unscale[c] = reciprocal_of_scale(scale);
  }

#pragma unroll
  for (int first = 0; first < kRows; first += kStageRows) {
    const int end = min(m - 1, first + kStageRows);  // a last row has no tail: tau 0
#pragma unroll 1
    for (int k = first; k < end; ++k) {
      const float4* const reflector = reinterpret_cast<const float4*>(reflectors + k * kPitch);
      float v[kRows];
#pragma unroll
      for (int r = first; r < kRows; r += 4) {
        const float4 item = reflector[r / 4];
        v[r] = item.x;
        v[r + 1] = item.y;
        v[r + 2] = item.z;
        v[r + 3] = item.w;
      }
      const float tau_k = taus[k];
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float chains[kChains] = {};
#pragma unroll
        for (int r = first; r < kRows; ++r) chains[r % kChains] = fmaf(v[r], a[c][r], chains[r % kChains]);
        const float projection = (chains[0] + chains[1]) + (chains[2] + chains[3]);
        const float coefficient = tau_k == 0.0f ? 0.0f : tau_k * projection;
#pragma unroll
        for (int r = first; r < kRows; ++r) a[c][r] = fmaf(-coefficient, v[r], a[c][r]);
      }
    }
  }

  int64_t place = ptx::global_address(h + corner + column);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      ptx::store_global(place + 128 * c, a[c][r] * unscale[c], r < m && column + 32 * c < n);
    place = ptx::recomputed(place + row_bytes);
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_WIDE_APPLY_KERNEL_CUH_
