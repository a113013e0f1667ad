// How the driver takes a time: microseconds of launches one after the other, or of a captured graph, where the host
// does not hold up short kernels.
#ifndef JAXQR_FFI_DRIVER_TIMING_H_
#define JAXQR_FFI_DRIVER_TIMING_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "../fork.h"
#include "device.h"

namespace driver {

// Median microseconds of a call, from groups of back-to-back launches: fewer groups where a call takes long.
template <typename Launch>
double microseconds(Launch launch, cudaStream_t stream = nullptr) {
  constexpr int kGroups = 5, kLaunches = 8;
  constexpr double kEnough = 20e3;  // microseconds of all groups
  cudaEvent_t start, stop;
  REQUIRE(cudaEventCreate(&start));
  REQUIRE(cudaEventCreate(&stop));
  std::vector<double> times;
  double measured = 0.0;
  for (int group = 0; group <= kGroups && measured < kEnough; ++group) {  // the first one warms up
    REQUIRE(cudaEventRecord(start, stream));
    for (int i = 0; i < kLaunches; ++i) REQUIRE(launch());
    REQUIRE(cudaEventRecord(stop, stream));
    REQUIRE(cudaEventSynchronize(stop));
    float milliseconds;
    REQUIRE(cudaEventElapsedTime(&milliseconds, start, stop));
    if (group == 0) continue;
    times.push_back(1000.0 * milliseconds / kLaunches);
    measured += 1000.0 * milliseconds;
  }
  REQUIRE(cudaEventDestroy(start));
  REQUIRE(cudaEventDestroy(stop));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// A graph of `times` times what `enqueue` puts on a stream, and that stream.
class Graph {
 public:
  explicit Graph(const jaxqr::Enqueue& enqueue, int times = 1) {
    cudaGraph_t graph;
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    REQUIRE(cudaDeviceSynchronize());
    REQUIRE(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < times; ++i) REQUIRE(enqueue(stream_));
    REQUIRE(cudaStreamEndCapture(stream_, &graph));
    REQUIRE(cudaGraphInstantiate(&program_, graph, 0));
    REQUIRE(cudaGraphDestroy(graph));
  }
  ~Graph() {
    cudaGraphExecDestroy(program_);
    cudaStreamDestroy(stream_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaError_t launch() const { return cudaGraphLaunch(program_, stream_); }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t program_;
};

// Microseconds of what `enqueue` puts on a stream, replayed from a graph of several of it.
inline double graph_microseconds(const jaxqr::Enqueue& enqueue) {
  constexpr int kTimes = 4;
  const Graph graph(enqueue, kTimes);
  return microseconds([&] { return graph.launch(); }, graph.stream()) / kTimes;
}

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_TIMING_H_
