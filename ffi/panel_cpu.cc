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
#include "shapes.h"

namespace jaxqr {
namespace {

double round_to_float(double value) { return static_cast<float>(value); }

double dot(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

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

// LAPACK's larft: T[:k, k] = -tau_k·T[:k, :k]·(Vᵀv_k), upper triangular, without a division. `v` is column-major, rows
// × width.
void form_t(const std::vector<double>& v, const std::vector<double>& tau, int64_t rows, int64_t width, float* t_out) {
  std::vector<double> t(width * width, 0.0);
  std::vector<double> products(width);
  for (int64_t k = 0; k < width; ++k) {
    const double* v_k = &v[k * rows + k];
    for (int64_t l = 0; l < k; ++l) {
      const double* v_l = &v[l * rows + k];
      products[l] = v_l[0] + dot(v_l + 1, v_k + 1, rows - k - 1);
    }
    for (int64_t i = 0; i < k; ++i) {
      double sum = 0;
      for (int64_t l = i; l < k; ++l) sum += t[i * width + l] * products[l];
      t[i * width + k] = -tau[k] * sum;
    }
    t[k * width + k] = tau[k];
  }
  std::copy(t.begin(), t.end(), t_out);
}

// Bits of the half nearest to `value` (ties to even), |value| < 65504.
uint16_t half_bits(float value) {
  const float magnitude = std::fabs(value);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude == 0) return sign;
  int exponent;
  std::frexp(magnitude, &exponent);
  const int last_place = std::max(exponent - 11, -24);  // exponent of the half's last place
  const float units = std::nearbyint(std::ldexp(magnitude, -last_place));
  // Subnormal halves count places of 2^-24; others 1024 to 2047 of theirs, and 2048 is the next binade's 1024.
  return sign | static_cast<uint16_t>((last_place + 24) * 1024 + static_cast<int>(units));
}

float half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude =
      std::ldexp(static_cast<float>(exponent ? fraction + 1024 : fraction), std::max(exponent, 1) - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// V, column-major in `panel`, as reflector_halves.h says.
void write_halves(const std::vector<double>& panel, int64_t rows, int64_t width, uint16_t* halves) {
  const int64_t pitch = reflector_pitch(width);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < pitch; ++c) {
      const double v = c >= width || i < c ? 0 : i == c ? 1 : panel[c * rows + i];
      const float scaled = static_cast<float>(v) * kReflectorScale;
      uint16_t* const high = halves + i * 2 * pitch + c;
      *high = std::isnan(scaled) ? 0x7e00 : half_bits(scaled);
      high[pitch] = std::isnan(scaled) ? 0x7e00 : half_bits(scaled - half_value(*high));
    }
  }
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
  form_t(panel, tau, rows, width, t_out);
  write_halves(panel, rows, width, halves);
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
