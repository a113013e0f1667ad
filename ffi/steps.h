// Host interface of several steps of a factorization in one call: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_STEPS_H_
#define JAXQR_FFI_STEPS_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "regimes.h"

namespace jaxqr {

// A panel of `batch` row-major m×n matrices, and the update of the columns right of it, if there are any.
struct FactorizationStep {
  PanelKernelName kernel;
  int64_t offset, width;
  float* tau;  // [batch, width]
  // Of the panel if there is an update, `t_stride` and `halves_stride` elements from matrix to matrix of the first half
  // of the batch to the second: the steps may share this memory.
  float* t;
  __half* halves;
  int64_t t_stride, halves_stride;
};

// The steps of both halves of the batch, one half beside the other: where one's panels wait for their chains of
// reflectors, the other's updates move memory, and neither leaves multiprocessors empty at the end of a launch.
//
// The first step reads A from `src` (which may be `h`), and makes the scales[batch, n] of the update's columns.
// Asynchronous on `stream`; allocates no device memory.
cudaError_t launch_steps(int64_t batch, int64_t m, int64_t n, const std::vector<FactorizationStep>& steps,
                         const float* src, float* h, float* scales, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_STEPS_H_
