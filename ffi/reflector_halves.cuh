// Writing reflectors as pairs of halves (reflector_halves.h).
#ifndef JAXQR_FFI_REFLECTOR_HALVES_CUH_
#define JAXQR_FFI_REFLECTOR_HALVES_CUH_

#include <cuda_fp16.h>

#include "reflector_halves.h"

namespace jaxqr {

// One element of V: its high part to `high`, its low part `pitch` further on. Neighbouring lanes take neighbouring
// columns: scattered stores of a few bytes, however wide, take several times as long.
__device__ __forceinline__ void store_halves(__half* high, int pitch, float v) {
  const float scaled = kReflectorScale * v;
  const __half part = __float2half_rn(scaled);
  high[0] = part;
  high[pitch] = __float2half_rn(scaled - __half2float(part));
}

// Two elements in neighbouring columns, the first an even one.
__device__ __forceinline__ void store_halves_pair(__half* high, int pitch, float2 v) {
  const float2 scaled = {kReflectorScale * v.x, kReflectorScale * v.y};
  const __half2 parts = __floats2half2_rn(scaled.x, scaled.y);
  const float2 widened = __half22float2(parts);
  *reinterpret_cast<__half2*>(high) = parts;
  *reinterpret_cast<__half2*>(high + pitch) = __floats2half2_rn(scaled.x - widened.x, scaled.y - widened.y);
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTOR_HALVES_CUH_
