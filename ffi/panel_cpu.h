// A panel on the CPU: LAPACK's geqr2 and larft, written for clarity.
#ifndef JAXQR_FFI_PANEL_CPU_H_
#define JAXQR_FFI_PANEL_CPU_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "householder_cpu.h"
#include "reflectors_cpu.h"
#include "shapes.h"

namespace jaxqr {

// Factors one matrix's panel: rows offset … m, columns offset … offset+width of the row-major m×n `src`, into `h`. If
// `whole`, the columns right of it get its reflectors too.
inline void factor_panel(const float* src, float* h, float* tau_out, float* t_out, uint16_t* halves, int64_t m,
                         int64_t n, int64_t offset, int64_t width, bool whole = false) {
  const int64_t rows = m - offset, columns = whole ? n - offset : width;
  const int64_t corner = offset * n + offset;
  std::vector<double> tau;
  const std::vector<double> panel = factor_columns(src + corner, h + corner, rows, n, width, columns, &tau);
  std::copy(tau.begin(), tau.end(), tau_out);
  if (t_out == nullptr) return;
  const std::vector<double> t = form_t(panel, tau, rows, width);
  std::copy(t.begin(), t.end(), t_out);
  write_halves(panel, std::vector<double>(width, 1.0), rows, width, halves);
}

// The panel of every matrix, from `src` into `h`; T and halves unless they are empty.
inline void factor_panels(Dimensions matrices, const float* src, float* h, Vectors tau, Matrices t, Halves halves,
                          int64_t offset, int64_t width, bool whole = false) {
  const int64_t batch = matrices[0], m = matrices[1], n = matrices[2];
  const bool want_t = t.dimensions()[1] > 0;
  for (int64_t b = 0; b < batch; ++b) {
    factor_panel(src + b * m * n, h + b * m * n, tau.typed_data() + b * width,
                 want_t ? t.typed_data() + b * width * width : nullptr,
                 static_cast<uint16_t*>(halves.untyped_data()) + b * (m - offset) * 2 * reflector_pitch(width), m, n,
                 offset, width, whole);
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_CPU_H_
