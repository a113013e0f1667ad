#include "fork.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace jaxqr {
namespace {

// Of one stream; kept as long as the process. While a graph is captured from the stream, the side stream belongs to
// that capture, so that streams cannot share one.
struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  std::mutex enqueuing;
};

cudaError_t create(Side* side) {
  cudaError_t error = cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->forked, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&side->joined, cudaEventDisableTiming);
  return error;
}

cudaError_t side_of(cudaStream_t stream, Side** side) {
  static std::mutex mutex;
  static auto& sides = *new std::map<std::pair<int, cudaStream_t>, std::unique_ptr<Side>>;  // outlives the runtime
  int device;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Side>& place = sides[{device, stream}];
  if (place == nullptr) {
    auto made = std::make_unique<Side>();
    // The calling thread may be capturing.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) return error;
    error = create(made.get());
    const cudaError_t restored = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error == cudaSuccess) error = restored;
    if (error != cudaSuccess) return error;
    place = std::move(made);
  }
  *side = place.get();
  return cudaSuccess;
}

}  // namespace

cudaError_t Fork::beside_waits() const {
  const cudaError_t error = cudaEventRecord(event, stream);
  return error != cudaSuccess ? error : cudaStreamWaitEvent(beside, event, 0);
}

cudaError_t run_beside(const std::function<cudaError_t(const Fork& fork)>& enqueue, cudaStream_t stream) {
  Side* side;
  cudaError_t error = side_of(stream, &side);
  if (error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(side->enqueuing);
  const Fork fork{stream, side->stream, side->forked};
  error = fork.beside_waits();
  if (error != cudaSuccess) return error;
  error = enqueue(fork);
  // Also after an error the streams join: a capture must not end with a branch of its own.
  const cudaError_t recorded = cudaEventRecord(side->joined, side->stream);
  const cudaError_t joined = cudaStreamWaitEvent(stream, side->joined, 0);
  return error != cudaSuccess ? error : recorded != cudaSuccess ? recorded : joined;
}

}  // namespace jaxqr
