// Host interface of the fused block-reflector update: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_H_
#define JAXQR_FFI_BLOCK_REFLECTOR_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxqr {

// The widest block reflector of the fused update.
inline constexpr int64_t kMaxBlockReflectorWidth = 64;

// Columns first … last of `batch` row-major m×n matrices, updated by the panel whose first pivot is (offset, offset).
struct BlockReflectorShape {
  int64_t batch, m, n, offset, width, first, last;
};

// C ← C - V·Tᵀ·(Vᵀ·C) for C = rows offset … m of the columns, read from `src` (which may be `h`) and written to `h`; V
// is the panel in `h`, t[batch, width, width]. Asynchronous on `stream`; allocates nothing.
cudaError_t launch_block_reflector(const BlockReflectorShape& shape, float* h, const float* t, const float* src,
                                   cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_H_
