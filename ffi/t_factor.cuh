// The compact-WY factor T of a panel: I - V·T·Vᵀ is the product of its reflectors.
#ifndef JAXQR_FFI_T_FACTOR_CUH_
#define JAXQR_FFI_T_FACTOR_CUH_

namespace jaxqr {

// T = (I + diag(tau)·G)⁻¹·diag(tau) from coupling[k·kPitch + i] = tau_i·G(i, k) for i < k < kPitch, zero for k ≥ width;
// what is elsewhere does not count. By substitution on diagonal blocks of 32, and two products for the block between
// them. No 1/tau. Called by all threads, after a barrier; kPitch is 32 or, with kPitch² floats of `scratch`, 64.
template <int kPitch>
__device__ __forceinline__ void t_from_coupling(const float* tau, float* coupling, float* scratch, int width,
                                                float* t) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int block = warp; block < kPitch / 32; block += warps) {
    // Lane j holds column j of the block's inverse.
    const int base = 32 * block, j = base + lane;
    float x[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = i == lane ? 1.0f : 0.0f;
    const float* const n = coupling + base * kPitch + base;
#pragma unroll
    for (int k = 31; k >= 1; --k) {
#pragma unroll
      for (int i = 0; i < k; i += 4) {
        const float4 m = *reinterpret_cast<const float4*>(n + k * kPitch + i);
        x[i] = fmaf(-m.x, x[k], x[i]);
        if (i + 1 < k) x[i + 1] = fmaf(-m.y, x[k], x[i + 1]);
        if (i + 2 < k) x[i + 2] = fmaf(-m.z, x[k], x[i + 2]);
        if (i + 3 < k) x[i + 3] = fmaf(-m.w, x[k], x[i + 3]);
      }
    }
    if (kPitch > 32) {
#pragma unroll
      for (int i = 0; i < 32; ++i) scratch[(base + i) * kPitch + j] = x[i];
    }
    if (j < width) {
      const float tau_j = tau[j];
      float* place = t + base * width + j;
#pragma unroll
      for (int i = 0; i < 32; ++i, place += width) {
        if (base + i < width) *place = x[i] * tau_j;
      }
    }
  }
  if constexpr (kPitch > 32) {
    // T₁₂ = -X₁₁·Y·diag(tau₂) with Y = N₁₂·X₂₂, for X the inverses and N the coupling matrix, of which Y takes a part
    // that does not count.
    for (int i = 32 + warp; i < width; i += warps) t[i * width + lane] = 0.0f;
    __syncthreads();
    constexpr int kRows = 8;  // of a warp
    float* const y = coupling + 32;
    for (int i = kRows * warp; i < 32; i += kRows * warps) {
      float sums[kRows] = {};
#pragma unroll 8
      for (int l = 32; l < 64; ++l) {
        const float x = scratch[l * kPitch + 32 + lane];
#pragma unroll
        for (int r = 0; r < kRows; r += 4) {
          const float4 n = *reinterpret_cast<const float4*>(coupling + l * kPitch + i + r);
          sums[r] = fmaf(n.x, x, sums[r]);
          sums[r + 1] = fmaf(n.y, x, sums[r + 1]);
          sums[r + 2] = fmaf(n.z, x, sums[r + 2]);
          sums[r + 3] = fmaf(n.w, x, sums[r + 3]);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) y[(i + r) * kPitch + lane] = sums[r];
    }
    __syncthreads();
    for (int i = kRows * warp; i < 32; i += kRows * warps) {
      float sums[kRows] = {};
#pragma unroll 2
      for (int l = 0; l < 32; l += 4) {
        const float ys[4] = {y[l * kPitch + lane], y[(l + 1) * kPitch + lane], y[(l + 2) * kPitch + lane],
                             y[(l + 3) * kPitch + lane]};
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 x = *reinterpret_cast<const float4*>(scratch + (i + r) * kPitch + l);
          sums[r] = fmaf(x.w, ys[3], fmaf(x.z, ys[2], fmaf(x.y, ys[1], fmaf(x.x, ys[0], sums[r]))));
        }
      }
      if (32 + lane >= width) break;
      const float tau_j = tau[32 + lane];
#pragma unroll
      for (int r = 0; r < kRows; ++r) t[(i + r) * width + 32 + lane] = -sums[r] * tau_j;
    }
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_T_FACTOR_CUH_
