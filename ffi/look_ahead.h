// Host interface of an update with look-ahead: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_LOOK_AHEAD_H_
#define JAXQR_FFI_LOOK_AHEAD_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "block_reflector.h"
#include "fork.h"

namespace jaxqr {

// Columns first … last of `batch` matrices, of which those up to `next` are factored next.
struct LookAheadColumns {
  int64_t batch, first, next, last, early;
};

// Enqueues the update of columns first … last of `matrices` matrices from `matrix` on.
using EnqueueUpdate =
    std::function<cudaError_t(int64_t first, int64_t last, int64_t matrix, int64_t matrices, cudaStream_t stream)>;

// The columns that are factored next are updated first, beside them the others of the first `early` matrices if there
// are so many, and then `factor_next` runs beside the update of what is left.
cudaError_t run_look_ahead(const LookAheadColumns& columns, const EnqueueUpdate& update, const Enqueue& factor_next,
                           cudaStream_t stream);

// As launch_block_reflector with `transpose`, with look-ahead: `next_panel` factors the first `next_width` columns.
cudaError_t launch_look_ahead(const BlockReflectorShape& shape, int64_t next_width, int64_t early,
                              const Enqueue& next_panel, float* h, const __half* halves, const float* t, float* scales,
                              bool make_scales, const float* src, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_LOOK_AHEAD_H_
