// Reference handler of jaxqr_panel on the CPU: LAPACK's geqr2 and larft of a panel, written for clarity.
//
// The panel is factored in a float64 copy: no square or product of float32 values leaves float64's range, so no scales
// are needed. Reflectors and taus are rounded to float32 as they are made, so that what is applied, what is stored and
// what T sees are the same.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "handlers.h"
#include "ieee_scope.h"
#include "reflectors_cpu.h"
#include "shapes.h"

namespace jaxqr {
namespace {

double round_to_float(double value) { return static_cast<float>(value); }

// LAPACK's larfg: turns x into [beta, v_1, …] with H·x = beta·e_0, H = I - tau·v·vᵀ, v_0 = 1. Returns tau.
double make_reflector(double* x, int64_t size) {
  const double alpha = x[0];
  const double tail = dot(x + 1, x + 1, size - 1);
  if (tail == 0) return 0;
  double norm = std::sqrt(alpha * alpha + tail);
  if (std::isinf(norm)) norm = std::numeric_limits<double>::quiet_NaN();
  const double beta = -std::copysign(norm, alpha);
  for (int64_t i = 1; i < size; ++i) x[i] = round_to_float(x[i] / (alpha - beta));
  x[0] = beta;
  return round_to_float((beta - alpha) / beta);
}

// y ← y - tau·v·(vᵀy); v_0 = 1 is implied.
void apply_reflector(const double* v, double tau, double* y, int64_t size) {
  const double weight = tau * (y[0] + dot(v + 1, y + 1, size - 1));
  y[0] -= weight;
  for (int64_t i = 1; i < size; ++i) y[i] -= weight * v[i];
}

// Factors one matrix's panel: rows offset … m, columns offset … offset+width of the row-major m×n `src`, into `h`.
void factor_panel(const float* src, float* h, float* tau_out, float* t_out, uint16_t* halves, int64_t m, int64_t n,
                  int64_t offset, int64_t width) {
  const int64_t rows = m - offset;
  std::vector<double> panel(rows * width);  // column-major
  std::vector<double> tau(width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < width; ++c) panel[c * rows + i] = src[(offset + i) * n + offset + c];

  for (int64_t k = 0; k < width; ++k) {
    double* v = &panel[k * rows + k];
    tau[k] = make_reflector(v, rows - k);
    for (int64_t c = k + 1; c < width; ++c) apply_reflector(v, tau[k], &panel[c * rows + k], rows - k);
  }

  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < width; ++c) h[(offset + i) * n + offset + c] = static_cast<float>(panel[c * rows + i]);
  std::copy(tau.begin(), tau.end(), tau_out);
  if (t_out == nullptr) return;
  const std::vector<double> t = form_t(panel, tau, rows, width);
  std::copy(t.begin(), t.end(), t_out);
  write_halves(panel, std::vector<double>(width, 1.0), rows, width, halves);
}

xla::ffi::Error panel(Matrices src, xla::ffi::Result<Matrices> h, xla::ffi::Result<Vectors> tau,
                      xla::ffi::Result<Matrices> t, xla::ffi::Result<Halves> halves, int64_t offset, int64_t width,
                      std::string_view /*regime*/, xla::ffi::Span<const int64_t> /*variant*/, bool in_place) {
  if (auto error = check_panel(src, *h, *tau, *t, *halves, offset, width); error.failure()) return error;
  if (in_place && src.typed_data() != h->typed_data())
    std::copy_n(src.typed_data(), src.element_count(), h->typed_data());
  const IeeeScope ieee;
  const int64_t batch = src.dimensions()[0], m = src.dimensions()[1], n = src.dimensions()[2];
  const bool want_t = t->dimensions()[1] > 0;
  for (int64_t b = 0; b < batch; ++b) {
    factor_panel(src.typed_data() + b * m * n, h->typed_data() + b * m * n, tau->typed_data() + b * width,
                 want_t ? t->typed_data() + b * width * width : nullptr,
                 static_cast<uint16_t*>(halves->untyped_data()) + b * (m - offset) * 2 * reflector_pitch(width), m, n,
                 offset, width);
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_panel_cpu, jaxqr::panel,
                              xla::ffi::Ffi::Bind()
                                  .Arg<jaxqr::Matrices>()
                                  .Ret<jaxqr::Matrices>()
                                  .Ret<jaxqr::Vectors>()
                                  .Ret<jaxqr::Matrices>()
                                  .Ret<jaxqr::Halves>()
                                  .Attr<int64_t>("offset")
                                  .Attr<int64_t>("width")
                                  .Attr<std::string_view>("regime")
                                  .Attr<xla::ffi::Span<const int64_t>>("variant")
                                  .Attr<bool>("in_place"));
