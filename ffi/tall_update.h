// Host interface of the update of the columns right of a tall panel: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_TALL_UPDATE_H_
#define JAXQR_FFI_TALL_UPDATE_H_

#include <cuda_runtime_api.h>

#include "tall_update_shape.h"

namespace jaxqr {

// The widest block of reflectors.
inline constexpr int64_t kMaxTallUpdateWidth = 64;

// C ← (H_0 … H_{width-1})ᵀ·C with the reflectors below the diagonal of `h` and tau[batch, width]; C is read from `src`,
// which may be `h`, and written to `h`. Three launches; workspace[batch, shape.workspace()] need not be initialized.
// Asynchronous on `stream`; allocates nothing.
cudaError_t launch_tall_update(const TallUpdateShape& shape, float* h, const float* tau, float* workspace,
                               const float* src, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_TALL_UPDATE_H_
