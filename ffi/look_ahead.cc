#include "look_ahead.h"

#include <algorithm>

#include "reflector_halves.h"

namespace jaxqr {

cudaError_t launch_look_ahead(const BlockReflectorShape& shape, int64_t next_width, int64_t early,
                              const Enqueue& next_panel, float* h, const __half* halves, const float* t, float* scales,
                              bool make_scales, const float* src, cudaStream_t stream) {
  BlockReflectorShape next = shape, rest = shape;
  next.last = rest.first = shape.first + next_width;
  // Of `count` matrices from `first` on.
  const auto update = [=](BlockReflectorShape columns, int64_t first, int64_t count, cudaStream_t stream) {
    columns.batch = count;
    const int64_t at = first * shape.m * shape.n, rows = shape.m - shape.offset;
    return launch_block_reflector(columns, h + at, halves + first * rows * 2 * reflector_pitch(shape.width),
                                  t + first * shape.width * shape.width, true, scales + first * shape.n, make_scales,
                                  false, src + at, stream);
  };
  const int64_t first_ones = std::min(early, shape.batch);
  return run_beside(
      [&](const Fork& fork) {
        cudaError_t error = update(next, 0, shape.batch, fork.stream);
        if (error == cudaSuccess) error = update(rest, 0, first_ones, fork.beside);
        // The other matrices wait for the next panel's columns too, and come after the panel: their thread blocks would
        // take all multiprocessors before it can.
        if (error == cudaSuccess) error = fork.beside_waits();
        if (error == cudaSuccess) error = next_panel(fork.stream);
        return error != cudaSuccess ? error : update(rest, first_ones, shape.batch - first_ones, fork.beside);
      },
      stream);
}

}  // namespace jaxqr
