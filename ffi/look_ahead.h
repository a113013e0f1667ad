// Host interface of an update with look-ahead: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_LOOK_AHEAD_H_
#define JAXQR_FFI_LOOK_AHEAD_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "block_reflector.h"
#include "fork.h"

namespace jaxqr {

// As launch_block_reflector with `transpose`, but the first `next_width` columns are updated first, beside them the
// others of the first `early` matrices if there are so many, and then `next_panel`, which factors those columns, runs
// beside the update of what is left.
cudaError_t launch_look_ahead(const BlockReflectorShape& shape, int64_t next_width, int64_t early,
                              const Enqueue& next_panel, float* h, const __half* halves, const float* t, float* scales,
                              bool make_scales, const float* src, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_LOOK_AHEAD_H_
