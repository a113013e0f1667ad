// A second stream beside a given one, for kernels that may run at the same time as those that follow on it.
#ifndef JAXQR_FFI_FORK_H_
#define JAXQR_FFI_FORK_H_

#include <cuda_runtime_api.h>

#include <functional>

namespace jaxqr {

// Enqueues on streams, asynchronously; allocates no device memory.
using Enqueue = std::function<cudaError_t(cudaStream_t stream)>;

// Runs `urgent` beside `rest`, both after what is on `stream` by now and before what comes to it later. `urgent` goes
// on in the stream, and `rest` waits in another one for an event, so that the thread blocks of `urgent` start first:
// were it the other way around, those of `rest` would take all multiprocessors before. May be captured in a graph, and
// called by several threads.
cudaError_t run_beside(const Enqueue& urgent, const Enqueue& rest, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_FORK_H_
