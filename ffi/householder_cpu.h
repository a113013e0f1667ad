// Householder QR of columns for the reference handlers on the CPU: LAPACK's geqr2, written for clarity.
//
// The columns are factored in a float64 copy: no square or product of float32 values leaves float64's range, so no
// scales are needed. Reflectors and taus are rounded to float32 as they are made, so that what is applied, what is
// stored and what T sees are the same.
#ifndef JAXQR_FFI_HOUSEHOLDER_CPU_H_
#define JAXQR_FFI_HOUSEHOLDER_CPU_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reflectors_cpu.h"

namespace jaxqr {

inline double round_to_float(double value) { return static_cast<float>(value); }

// LAPACK's larfg: turns x into [beta, v_1, …] with H·x = beta·e_0, H = I - tau·v·vᵀ, v_0 = 1. Returns tau.
inline double make_reflector(double* x, int64_t size) {
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
inline void apply_reflector(const double* v, double tau, double* y, int64_t size) {
  const double weight = tau * (y[0] + dot(v + 1, y + 1, size - 1));
  y[0] -= weight;
  for (int64_t i = 1; i < size; ++i) y[i] -= weight * v[i];
}

// Factors `rows` rows of `columns` columns of the matrix with row stride n that begins at `src` into `h`, by the
// reflectors of the first `width`. Returns what is written there, column-major in float64.
inline std::vector<double> factor_columns(const float* src, float* h, int64_t rows, int64_t n, int64_t width,
                                          int64_t columns, std::vector<double>* tau) {
  std::vector<double> panel(rows * columns);
  tau->resize(width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c) panel[c * rows + i] = src[i * n + c];
  for (int64_t k = 0; k < width; ++k) {
    double* v = &panel[k * rows + k];
    (*tau)[k] = make_reflector(v, rows - k);
    for (int64_t c = k + 1; c < columns; ++c) apply_reflector(v, (*tau)[k], &panel[c * rows + k], rows - k);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c) h[i * n + c] = static_cast<float>(panel[c * rows + i]);
  return panel;
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_HOUSEHOLDER_CPU_H_
