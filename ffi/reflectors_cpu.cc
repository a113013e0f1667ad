// Reference handler of jaxqr_reflectors on the CPU: LAPACK's larft, in float64, written for clarity.

#include "reflectors_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bindings.h"
#include "handlers.h"
#include "ieee_scope.h"
#include "shapes.h"

namespace jaxqr {
namespace {

// One block of one matrix: `h` begins at the block's first pivot.
void make_reflectors(const float* h, const float* tau_in, float* t_out, uint16_t* halves, int64_t rows, int64_t n,
                     int64_t width) {
  std::vector<double> v(rows * width, 0.0);  // column-major, below the diagonal
  std::vector<double> scales(width, 1.0);
  for (int64_t k = 0; k < width; ++k) {
    double magnitude = 1;
    for (int64_t i = k + 1; i < rows; ++i) {
      v[k * rows + i] = h[i * n + k];
      magnitude = std::max(magnitude, std::fabs(v[k * rows + i]));
    }
    if (std::isfinite(magnitude)) scales[k] = std::ldexp(1.0, -std::ilogb(magnitude));
  }
  std::vector<double> t = form_t(v, std::vector<double>(tau_in, tau_in + width), rows, width);
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = i; j < width; ++j) t[i * width + j] /= scales[i] * scales[j];
  std::copy(t.begin(), t.end(), t_out);
  write_halves(v, scales, rows, width, halves);
}

xla::ffi::Error reflectors(Matrices h, Vectors tau, xla::ffi::RemainingRets results, int64_t offset, int64_t first) {
  std::vector<ReflectorResults> blocks;
  if (auto error = check_reflectors(h, tau, results, offset, first, &blocks); error.failure()) return error;
  const IeeeScope ieee;
  const int64_t batch = h.dimensions()[0], m = h.dimensions()[1], n = h.dimensions()[2], k = tau.dimensions()[1];
  for (const ReflectorResults& block : blocks) {
    const int64_t rows = m - block.offset, width = block.width;
    for (int64_t b = 0; b < batch; ++b) {
      make_reflectors(h.typed_data() + (b * m + block.offset) * n + block.offset,
                      tau.typed_data() + b * k + block.offset - first, block.t + b * width * width,
                      static_cast<uint16_t*>(block.halves) + b * rows * 2 * reflector_pitch(width), rows, n, width);
    }
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_reflectors_cpu, jaxqr::reflectors, jaxqr::bind_reflectors(xla::ffi::Ffi::Bind()));
