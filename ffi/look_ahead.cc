#include "look_ahead.h"

namespace jaxqr {

cudaError_t launch_look_ahead(const BlockReflectorShape& shape, int64_t next_width, const Enqueue& next_panel, float* h,
                              const __half* halves, const float* t, float* scales, bool make_scales, const float* src,
                              cudaStream_t stream) {
  BlockReflectorShape next = shape, rest = shape;
  next.last = rest.first = shape.first + next_width;
  const auto update = [=](const BlockReflectorShape& columns, cudaStream_t stream) {
    return launch_block_reflector(columns, h, halves, t, true, scales, make_scales, false, src, stream);
  };
  // The rest waits for the next panel's columns too, so that it does not take the multiprocessors before the panel can.
  if (const cudaError_t error = update(next, stream); error != cudaSuccess) return error;
  // The panel first, or the thread blocks of the rest would take all multiprocessors.
  return run_beside(
      [&](cudaStream_t stream, cudaStream_t beside) {
        const cudaError_t error = next_panel(stream);
        return error != cudaSuccess ? error : update(rest, beside);
      },
      stream);
}

}  // namespace jaxqr
