#include "look_ahead.h"

#include <algorithm>

#include "reflector_halves.h"

namespace jaxqr {

cudaError_t run_look_ahead(const LookAheadColumns& columns, const EnqueueUpdate& update, const Enqueue& factor_next,
                           cudaStream_t stream) {
  const int64_t early = std::min(columns.early, columns.batch);
  return run_beside(
      [&](const Fork& fork) {
        const auto update_rest = [&](int64_t matrix, int64_t matrices) {
          return update(columns.next, columns.last, matrix, matrices, fork.beside);
        };
        cudaError_t error = update(columns.first, columns.next, 0, columns.batch, fork.stream);
        if (error == cudaSuccess) error = update_rest(0, early);
        // The other matrices wait for the next columns too, and come after what factors these: their thread blocks
        // would take all multiprocessors before it can.
        if (error == cudaSuccess) error = fork.beside_waits();
        if (error == cudaSuccess) error = factor_next(fork.stream);
        return error != cudaSuccess ? error : update_rest(early, columns.batch - early);
      },
      stream);
}

cudaError_t launch_look_ahead(const BlockReflectorShape& shape, int64_t next_width, int64_t early,
                              const Enqueue& next_panel, float* h, const __half* halves, const float* t, float* scales,
                              bool make_scales, const float* src, cudaStream_t stream) {
  return run_look_ahead(
      {shape.batch, shape.first, shape.first + next_width, shape.last, early},
      [&](int64_t first, int64_t last, int64_t matrix, int64_t matrices, cudaStream_t stream) {
        BlockReflectorShape part = shape;
        part.batch = matrices;
        part.first = first;
        part.last = last;
        const int64_t at = matrix * shape.m * shape.n, rows = shape.m - shape.offset;
        return launch_block_reflector(part, h + at, halves + matrix * rows * 2 * reflector_pitch(shape.width),
                                      t + matrix * shape.width * shape.width, true, scales + matrix * shape.n,
                                      make_scales, false, src + at, stream);
      },
      next_panel, stream);
}

}  // namespace jaxqr
