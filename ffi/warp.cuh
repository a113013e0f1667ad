// Warp-level toolbox: reductions over groups of lanes, and exact power-of-two scales.
#ifndef JAXQR_FFI_WARP_CUH_
#define JAXQR_FFI_WARP_CUH_

#include <cstdint>

namespace jaxqr {

inline constexpr unsigned kFullWarp = 0xffffffffu;

// Sum over aligned groups of kLanes neighbouring lanes, the same bits in every lane of the group. log2(kLanes) shuffles
// a value.
template <int kLanes, int kCount>
__device__ __forceinline__ void group_sum(float (&values)[kCount]) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += __shfl_xor_sync(kFullWarp, values[i], mask);
  }
}

template <int kLanes>
__device__ __forceinline__ float group_max(float value) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, mask));
  return value;
}

// Sums 2^b values over the warp by recursive halving: 2^b - 1 + (5 - b) shuffles. Lane l returns the sum of values[l >>
// (5 - b)].
template <int kMask = 16, typename T, int kCount>
__device__ __forceinline__ T transposed_sum(const T (&values)[kCount], int lane) {
  if constexpr (kCount == 1) {
    T sum = values[0];
#pragma unroll
    for (int rest = kMask; rest >= 1; rest /= 2) sum += __shfl_xor_sync(kFullWarp, sum, rest);
    return sum;
  } else {
    const bool upper = lane & kMask;
    T half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const T low = values[i], high = values[i + kCount / 2];
      half[i] = (upper ? high : low) + __shfl_xor_sync(kFullWarp, upper ? low : high, kMask);
    }
    return transposed_sum<kMask / 2>(half, lane);
  }
}

// Four values of each of four neighbouring lanes, transposed: value i of lane j, of the four, was value j of lane i.
__device__ __forceinline__ void transpose_quads(float (&values)[4], int lane) {
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    const bool upper = lane & mask;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & mask) continue;
      const float other = __shfl_xor_sync(kFullWarp, upper ? values[i] : values[i + mask], mask);
      (upper ? values[i] : values[i + mask]) = other;
    }
  }
}

// The power of two s with s·magnitude in [1, 2), as far as s and 1/s are normal numbers (2^-126 … 2^126); 1 for 0, Inf
// and NaN.
__device__ __forceinline__ float power_of_two_scale(float magnitude) {
  const int exponent = static_cast<int>(__float_as_uint(magnitude) >> 23) & 0xff;
  if (magnitude == 0.0f || exponent == 0xff) return 1.0f;
  return __uint_as_float(static_cast<uint32_t>(min(max(254 - exponent, 1), 253)) << 23);
}

// The product of two such scales, as far as it and its reciprocal are normal numbers.
__device__ __forceinline__ float product_of_scales(float x, float y) {
  const int exponent = static_cast<int>(__float_as_uint(x) >> 23) + static_cast<int>(__float_as_uint(y) >> 23) - 127;
  return __uint_as_float(static_cast<uint32_t>(min(max(exponent, 1), 253)) << 23);
}

// 1/s of such a scale, exact.
__device__ __forceinline__ float reciprocal_of_scale(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_WARP_CUH_
