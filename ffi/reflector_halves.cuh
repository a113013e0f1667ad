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

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTOR_HALVES_CUH_
