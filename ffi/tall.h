// Host interface of the kernels of tall panels (leaves.h), beside that of the leaves' factorization: plain C++ and CUDA
// runtime types, no XLA.
#ifndef JAXQR_FFI_TALL_H_
#define JAXQR_FFI_TALL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "leaves.h"

namespace jaxqr {

// The widest panel that is lifted.
inline constexpr int64_t kMaxTallWidth = 64;

// stack[batch, (1 + leaves)·width, width]: the panel's first `width` rows, from `src`, and the triangles of the leaves,
// which are factored in `h`. Asynchronous on `stream`; allocates nothing; so are the others.
cudaError_t launch_stack(const LeavesShape& shape, const float* src, const float* h, float* stack, cudaStream_t stream);

// Dynamic shared memory of launch_lift; the device has to offer as much to one CTA.
int64_t lift_shared_bytes(const LeavesShape& shape);

// Turns the leaves' reflectors in `h` and tau[batch, leaves, width] into the panel's: those of the factored `stack`,
// whose parts are multiplied by the leaves' Q. The panel's first `width` rows are the stack's.
cudaError_t launch_lift(const LeavesShape& shape, float* h, const float* tau, const float* stack, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_TALL_H_
