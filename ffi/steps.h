// Host interface of the steps of a factorization in one call: plain C++ and CUDA runtime types, no XLA.
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
  // of the batch to the second. Steps may share this memory as step_slots.h says.
  float* t;
  __half* halves;
  int64_t t_stride, halves_stride;
  // Whether the two make a group with the next step, which is then the second: the columns right of both panels are
  // updated by the reflectors of both at once. `coupling` [batch, kCouplingFloats] is the memory for what that takes.
  bool pairs;
  float* coupling;
  // Of a group's last step: whether its update takes the next group's columns first, and the others beside what makes
  // that group; those of the first `early` matrices beside the next group's columns already.
  bool look_ahead;
  int64_t early;
};

// All steps, from the first column to the last. In halves, those of both halves of the batch without look-ahead, one
// half beside the other: where one's panels wait for their chains of reflectors, the other's updates move memory, and
// neither leaves multiprocessors empty at the end of a launch.
//
// The first step reads A from `src` (which may be `h`), and the first group makes the scales[batch, n] of the columns
// that it updates. Asynchronous on `stream`; allocates no device memory.
cudaError_t launch_steps(int64_t batch, int64_t m, int64_t n, const std::vector<FactorizationStep>& steps,
                         bool in_halves, const float* src, float* h, float* scales, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_STEPS_H_
