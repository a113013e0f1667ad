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

// Four neighbouring elements as halves: two registers of high parts, two of low parts.
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

// acc += a·b for a 16×16 tile of a and two neighbouring 16×8 tiles of b (four registers each, high and low parts);
// acc[2] likewise.
__device__ __forceinline__ void mma_split(float (&acc)[2][4], const uint32_t (&a_high)[4], const uint32_t (&a_low)[4],
                                          const uint32_t (&b_high)[4], const uint32_t (&b_low)[4]) {
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    ptx::mma_m16n8k16(acc[tile], a_low, b_high[2 * tile], b_high[2 * tile + 1]);
    ptx::mma_m16n8k16(acc[tile], a_high, b_low[2 * tile], b_low[2 * tile + 1]);
    ptx::mma_m16n8k16(acc[tile], a_high, b_high[2 * tile], b_high[2 * tile + 1]);
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_MMA_CUH_
