// Elements of a float4 by their number.
#ifndef JAXQR_FFI_FLOAT4_CUH_
#define JAXQR_FFI_FLOAT4_CUH_

namespace jaxqr {

__device__ __forceinline__ float element(float4 x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

}  // namespace jaxqr

#endif  // JAXQR_FFI_FLOAT4_CUH_
