// A second stream beside a given one, for kernels that may run at the same time as those that follow on it.
#ifndef JAXQR_FFI_FORK_H_
#define JAXQR_FFI_FORK_H_

#include <cuda_runtime_api.h>

#include <functional>

namespace jaxqr {

// Enqueues on a stream, asynchronously; allocates no device memory.
using Enqueue = std::function<cudaError_t(cudaStream_t stream)>;

// A stream, and one beside it.
struct Fork {
  cudaStream_t stream, beside;
  cudaEvent_t event;

  // What comes to `beside` from now on waits for what is on `stream` by now.
  cudaError_t beside_waits() const;
};

// Calls `enqueue` with `stream` and with a stream beside it, for what comes after what is on `stream` by now and before
// what comes to it later. The stream beside waits for an event, so that the thread blocks of what goes on in `stream`
// start first. May be captured in a graph, and called by several threads.
cudaError_t run_beside(const std::function<cudaError_t(const Fork& fork)>& enqueue, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_FORK_H_
