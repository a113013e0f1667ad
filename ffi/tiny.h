// Host interface of the tiny-regime kernels: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_TINY_H_
#define JAXQR_FFI_TINY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxqr {

// `batch` contiguous row-major m×n matrices.
struct TinyShape {
  int64_t batch, m, n;
};

// A row of tiny_variants.h.
struct TinyVariant {
  int64_t column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane;
};

// Why the variant cannot factor these matrices, or nullptr if it can.
const char* tiny_variant_mismatch(const TinyVariant& variant, const TinyShape& shape);

// Factors every matrix: reads `src`, writes all of `h` (which may be `src`) and tau[batch, min(m, n)]. Asynchronous on
// `stream`; allocates nothing; static shared memory only. The caller has checked the variant with
// tiny_variant_mismatch.
cudaError_t launch_tiny(const TinyVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                        cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_TINY_H_
