// What the reference handlers on the CPU share: T and the halves of V, written for clarity.
#ifndef JAXQR_FFI_REFLECTORS_CPU_H_
#define JAXQR_FFI_REFLECTORS_CPU_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reflector_halves.h"

namespace jaxqr {

inline double dot(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

// LAPACK's larft: T[:k, k] = -tau_k·T[:k, :k]·(Vᵀv_k), upper triangular, without a division. `v` is column-major, rows
// × width, with the vectors below its diagonal.
inline std::vector<double> form_t(const std::vector<double>& v, const std::vector<double>& tau, int64_t rows,
                                  int64_t width) {
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
  return t;
}

// Bits of the half nearest to `value` (ties to even), |value| < 65504.
inline uint16_t half_bits(float value) {
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

inline float half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      std::ldexp(static_cast<float>(exponent ? fraction + 1024 : fraction), std::max(exponent, 1) - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// V, column-major below the diagonal of `v`, its columns times `scales`, as reflector_halves.h says.
inline void write_halves(const std::vector<double>& v, const std::vector<double>& scales, int64_t rows, int64_t width,
                         uint16_t* halves) {
  const int64_t pitch = reflector_pitch(width);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < pitch; ++c) {
      const double element = c >= width || i < c ? 0 : scales[c] * (i == c ? 1 : v[c * rows + i]);
      const float scaled = static_cast<float>(element) * kReflectorScale;
      uint16_t* const high = halves + i * 2 * pitch + c;
      *high = std::isfinite(scaled) ? half_bits(scaled) : 0x7e00;
      high[pitch] = std::isfinite(scaled) ? half_bits(scaled - half_value(*high)) : 0x7e00;
    }
  }
}

// An element of V from its two parts.
inline double from_halves(uint16_t high, uint16_t low) {
  return (static_cast<double>(half_value(high)) + half_value(low)) / kReflectorScale;
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTORS_CPU_H_
