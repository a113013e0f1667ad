#include "steps.h"

#include "block_reflector.h"
#include "fork.h"

namespace jaxqr {

cudaError_t launch_steps(int64_t batch, int64_t m, int64_t n, const std::vector<FactorizationStep>& steps,
                         const float* src, float* h, float* scales, cudaStream_t stream) {
  const auto factor = [&](int64_t first, int64_t count, cudaStream_t stream) {
    float* const place = h + first * m * n;
    const float* source = src + first * m * n;
    for (const FactorizationStep& step : steps) {
      const int64_t next = step.offset + step.width;
      float* const t = step.t + first * step.t_stride;
      __half* const halves = step.halves + first * step.halves_stride;
      const PanelKernel panel = panel_kernel(step.kernel, {count, m, n, step.offset, step.width}, next < n);
      cudaError_t error = panel.launch(source, place, step.tau + first * step.width, next < n ? t : nullptr,
                                       next < n ? halves : nullptr, stream);
      if (error == cudaSuccess && next < n) {
        error = launch_block_reflector({count, m, n, step.offset, step.width, next, n}, place, halves, t, true,
                                       scales + first * n, &step == &steps.front(), false, source, stream);
      }
      if (error != cudaSuccess) return error;
      source = place;
    }
    return cudaSuccess;
  };
  if (batch < 2) return batch == 0 ? cudaSuccess : factor(0, batch, stream);
  const int64_t half = batch / 2;
  return run_beside([&](cudaStream_t stream) { return factor(0, half, stream); },
                    [&](cudaStream_t stream) { return factor(half, batch - half, stream); }, stream);
}

}  // namespace jaxqr
