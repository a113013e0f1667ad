// Host interface of the wide-regime kernels: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_WIDE_H_
#define JAXQR_FFI_WIDE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tiny.h"

namespace jaxqr {

// A row of wide_variants.h.
struct WideVariant {
  int64_t rows, cols_per_lane;
};

// Why the variant cannot factor these matrices, or nullptr if it can.
const char* wide_variant_mismatch(const WideVariant& variant, const TinyShape& shape);

// Factors every matrix: reads `src`, writes all of `h`, which must not be `src`, and tau[batch, m]. Asynchronous on
// `stream`; allocates nothing. The caller has checked the variant with wide_variant_mismatch.
cudaError_t launch_wide(const WideVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                        cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_WIDE_H_
