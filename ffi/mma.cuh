// Tensor-core products of float32 operands at float32 grade: each operand as the sum of two halves, three
// half-precision products.
//
// x = high + low with high = fp16(x) and low = fp16(x - high) keeps 22 bits of x, if x lies well inside fp16's range:
// the caller scales by exact powers of two. x·y ≈ low·high + high·low + high·high, each product exact, accumulated in
// float32.
#ifndef JAXQR_FFI_MMA_CUH_
#define JAXQR_FFI_MMA_CUH_

#include <cuda_fp16.h>

#include <cstdint>

#include "ptx.cuh"

namespace jaxqr {

// Four elements as halves: two registers of high parts, two of low parts.
struct SplitQuad {
  uint2 high, low;
};

__device__ __forceinline__ SplitQuad split(float4 x) {
  const __half2 high_a = __floats2half2_rn(x.x, x.y), high_b = __floats2half2_rn(x.z, x.w);
  const float2 a = __half22float2(high_a), b = __half22float2(high_b);
  const __half2 low_a = __floats2half2_rn(x.x - a.x, x.y - a.y), low_b = __floats2half2_rn(x.z - b.x, x.w - b.y);
  const auto bits = [](__half2 value) { return *reinterpret_cast<const uint32_t*>(&value); };
  return {{bits(high_a), bits(high_b)}, {bits(low_a), bits(low_b)}};
}

// acc[j] += a·b[j] for a 16×16 tile of a (its fragments, high and low parts) and kCount 16×8 tiles of b. The tiles take
// turns, so that no product waits for the one before.
template <int kCount>
__device__ __forceinline__ void mma_split(float (&acc)[kCount][4], const uint32_t (&a_high)[4],
                                          const uint32_t (&a_low)[4], const uint32_t (&b_high)[kCount][2],
                                          const uint32_t (&b_low)[kCount][2]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) ptx::mma_m16n8k16(acc[j], a_low, b_high[j][0], b_high[j][1]);
#pragma unroll
  for (int j = 0; j < kCount; ++j) ptx::mma_m16n8k16(acc[j], a_high, b_low[j][0], b_low[j][1]);
#pragma unroll
  for (int j = 0; j < kCount; ++j) ptx::mma_m16n8k16(acc[j], a_high, b_high[j][0], b_high[j][1]);
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_MMA_CUH_
