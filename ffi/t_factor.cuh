// The compact-WY factor T of a panel: I - V·T·Vᵀ is the product of its reflectors.
#ifndef JAXQR_FFI_T_FACTOR_CUH_
#define JAXQR_FFI_T_FACTOR_CUH_

namespace jaxqr {

// T, of at most 64 columns, is made from a square matrix padded to this many rows and columns.
__host__ __device__ constexpr int coupling_pitch(int width) { return width <= 32 ? 32 : 64; }

// T = (I + diag(tau)·G)⁻¹·diag(tau) from coupling[k·pitch + i] = tau_i·G(i, k) (zero for i ≥ k), by substitution on
// diagonal blocks of 32 and two products for the block between them. No 1/tau. Called by all threads, after a barrier;
// `scratch` has width² floats, and tau_of(k) is tau of column k.
template <typename TauOf>
__device__ __forceinline__ void t_from_coupling(TauOf tau_of, float* coupling, float* scratch, int width, float* t) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int pitch = coupling_pitch(width);
  for (int block = warp; block < pitch / 32; block += warps) {
    // Lane j holds column j of the block's inverse.
    const int base = 32 * block, j = base + lane;
    float x[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = i == lane ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 31; k >= 1; --k) {
#pragma unroll
      for (int i = 0; i < k; i += 4) {
        const float4 m = *reinterpret_cast<const float4*>(coupling + (base + k) * pitch + base + i);
        x[i] = fmaf(-m.x, x[k], x[i]);
        if (i + 1 < k) x[i + 1] = fmaf(-m.y, x[k], x[i + 1]);
        if (i + 2 < k) x[i + 2] = fmaf(-m.z, x[k], x[i + 2]);
        if (i + 3 < k) x[i + 3] = fmaf(-m.w, x[k], x[i + 3]);
      }
    }
    if (j < width) {
      const float tau_j = tau_of(j);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (base + i < width) {
          if (pitch > 32) scratch[(base + i) * width + j] = x[i];
          t[(base + i) * width + j] = x[i] * tau_j;
        }
      }
    }
  }
  if (pitch == 32) return;

  // T₁₂ = -X₁₁·Y·diag(tau₂) with Y = N₁₂·X₂₂, for X the inverses and N the coupling matrix, whose zeros make room for
  // Y.
  for (int i = 32 + warp; i < width; i += warps) t[i * width + lane] = 0.0f;
  __syncthreads();
  const int second = width - 32;
  for (int i = 4 * warp; i < 32; i += 4 * warps) {
    float4 sum = {};
    if (lane < second) {
#pragma unroll 8
      for (int l = 0; l < second; ++l) {
        const float4 n = *reinterpret_cast<const float4*>(coupling + (32 + l) * pitch + i);
        const float x = scratch[(32 + l) * width + 32 + lane];
        sum = {fmaf(n.x, x, sum.x), fmaf(n.y, x, sum.y), fmaf(n.z, x, sum.z), fmaf(n.w, x, sum.w)};
      }
    }
    coupling[i * pitch + 32 + lane] = sum.x;
    coupling[(i + 1) * pitch + 32 + lane] = sum.y;
    coupling[(i + 2) * pitch + 32 + lane] = sum.z;
    coupling[(i + 3) * pitch + 32 + lane] = sum.w;
  }
  __syncthreads();
  for (int i = 4 * warp; i < 32; i += 4 * warps) {
    if (lane >= second) break;
    float sums[4] = {};
#pragma unroll 8
    for (int l = 0; l < 32; ++l) {
      const float y_lj = coupling[l * pitch + 32 + lane];
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[r] = fmaf(scratch[(i + r) * width + l], y_lj, sums[r]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      t[(i + r) * width + 32 + lane] = -sums[r] * tau_of(32 + lane);
    }
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_T_FACTOR_CUH_
