#include "steps.h"

#include <initializer_list>

#include "block_reflector.h"
#include "fork.h"

namespace jaxqr {
namespace {

// `count` matrices from `first` on, on a stream.
struct Part {
  int64_t first, count;
  cudaStream_t stream;
};

}  // namespace

cudaError_t launch_steps(int64_t batch, int64_t m, int64_t n, const std::vector<FactorizationStep>& steps,
                         const float* src, float* h, float* scales, cudaStream_t stream) {
  const auto launch = [&](const FactorizationStep& step, const Part& part) {
    const auto [first, count, stream] = part;
    const bool starts = &step == &steps.front();
    const int64_t next = step.offset + step.width;
    float* const place = h + first * m * n;
    const float* const source = starts ? src + first * m * n : place;
    float* const t = next < n ? step.t + first * step.t_stride : nullptr;
    __half* const halves = next < n ? step.halves + first * step.halves_stride : nullptr;
    const cudaError_t error = panel_kernel(step.kernel, {count, m, n, step.offset, step.width}, next < n)
                                  .launch(source, place, step.tau + first * step.width, t, halves, stream);
    if (error != cudaSuccess || next == n) return error;
    BlockReflectorShape shape{count, m, n, step.offset, step.width, next, n};
    shape.at_once = count < batch ? 2 : 1;
    return launch_block_reflector(shape, place, halves, t, true, scales + first * n, starts, false, source, stream);
  };
  // Step by step, so that no part waits for the host to be done with another.
  const auto enqueue = [&](std::initializer_list<Part> parts) {
    for (const FactorizationStep& step : steps) {
      for (const Part& part : parts)
        if (const cudaError_t error = launch(step, part); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  };
  if (batch < 2) return batch == 0 ? cudaSuccess : enqueue({{0, batch, stream}});
  return run_beside(
      [&](const Fork& fork) {
        return enqueue({{0, batch / 2, fork.stream}, {batch / 2, batch - batch / 2, fork.beside}});
      },
      stream);
}

}  // namespace jaxqr
