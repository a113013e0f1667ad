// Host interface of the narrow-regime kernels: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_NARROW_H_
#define JAXQR_FFI_NARROW_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tiny.h"

namespace jaxqr {

// A row of narrow_variants.h.
struct NarrowVariant {
  int64_t lanes, warps, rows_per_lane;
};

// Why the variant cannot factor these matrices, or nullptr if it can.
const char* narrow_variant_mismatch(const NarrowVariant& variant, const TinyShape& shape);

// As launch_tiny.
cudaError_t launch_narrow(const NarrowVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                          cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_NARROW_H_
