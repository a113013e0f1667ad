// A block reflector on the CPU: LAPACK's larfb, C ← C - V·Tᵀ·Vᵀ·C or C ← C - V·T·Vᵀ·C, written for clarity.
//
// Products and sums are float64, in which no float32 value leaves the range, and scales are not used: those that are
// made where none are given are 1, and those made again what the kernels make. A NaN in a column of C stays there.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_CPU_H_
#define JAXQR_FFI_BLOCK_REFLECTOR_CPU_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reflectors_cpu.h"
#include "scales.h"
#include "shapes.h"

namespace jaxqr {

// One matrix: C is rows offset … m, columns first … last of `src`, which is row-major m×n like `h`, which gets it.
inline void apply_block_reflector(float* h, const uint16_t* halves, const float* t, bool transpose, const float* src,
                                  int64_t m, int64_t n, int64_t offset, int64_t width, int64_t first, int64_t last) {
  const int64_t rows = m - offset, columns = last - first, pitch = reflector_pitch(width);
  std::vector<double> v(rows * width);
  std::vector<double> projections(width * columns, 0.0);  // VᵀC
  std::vector<double> weights(width * columns, 0.0);      // Tᵀ or T times VᵀC
  const auto source = [&](int64_t row) { return src + (offset + row) * n + first; };
  // Row `row` of V is zero from here on.
  const auto reflectors_of = [&](int64_t row) { return std::min(width, row + 1); };

  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < reflectors_of(row); ++k) {
      const uint16_t* const high = halves + row * 2 * pitch + k;
      const double v_k = v[row * width + k] = from_halves(high[0], high[pitch]);
      for (int64_t c = 0; c < columns; ++c) projections[k * columns + c] += v_k * source(row)[c];
    }
  }
  for (int64_t l = 0; l < width; ++l) {
    for (int64_t k = l; k < width; ++k) {
      const double t_lk = t[l * width + k];
      const int64_t to = transpose ? k : l, from = transpose ? l : k;
      for (int64_t c = 0; c < columns; ++c) weights[to * columns + c] += t_lk * projections[from * columns + c];
    }
  }
  std::vector<double> updated(columns);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(source(row), columns, updated.begin());
    for (int64_t k = 0; k < reflectors_of(row); ++k) {
      const double v_k = v[row * width + k];
      for (int64_t c = 0; c < columns; ++c) updated[c] -= v_k * weights[k * columns + c];
    }
    std::copy(updated.begin(), updated.end(), h + (offset + row) * n + first);
  }
}

// Of every matrix, from `h_in` or where `operands` say into `h_out`. The first `known` rows and columns of C are the
// identity's.
inline void apply_block_reflectors(const Matrices& h_in, const Halves& halves, const Matrices& t, bool transpose,
                                   const BlockReflectorOperands& operands, Matrices h_out, Vectors scales,
                                   int64_t offset, int64_t width, int64_t first, int64_t last, int64_t known = 0) {
  if (h_in.typed_data() != h_out.typed_data()) std::copy_n(h_in.typed_data(), h_in.element_count(), h_out.typed_data());
  if (!operands.scales)
    std::fill_n(scales.typed_data(), scales.element_count(), 1.0f);
  else if (operands.scales->typed_data() != scales.typed_data())
    std::copy_n(operands.scales->typed_data(), scales.element_count(), scales.typed_data());
  const float* const src = operands.src ? operands.src->typed_data() : h_out.typed_data();
  const int64_t batch = h_out.dimensions()[0], m = h_out.dimensions()[1], n = h_out.dimensions()[2];
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t row = 0; row < m - offset; ++row) {
      for (int64_t column = 0; column < (row < known ? last - first : std::min(known, last - first)); ++column)
        h_out.typed_data()[(b * m + offset + row) * n + first + column] = row == column ? 1.0f : 0.0f;
    }
    apply_block_reflector(
        h_out.typed_data() + b * m * n,
        static_cast<const uint16_t*>(halves.untyped_data()) + b * (m - offset) * 2 * reflector_pitch(width),
        t.typed_data() + b * width * width, transpose, src + b * m * n, m, n, offset, width, first, last);
  }
}

// The scales of the columns as they are now.
inline void remake_column_scales(const Matrices& h, Vectors scales, int64_t offset, int64_t first, int64_t last) {
  const int64_t batch = h.dimensions()[0], m = h.dimensions()[1], n = h.dimensions()[2];
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t column = first; column < last; ++column) {
      float largest = 0.0f;
      for (int64_t row = offset; row < m; ++row)
        largest = std::fmax(largest, std::fabs(h.typed_data()[(b * m + row) * n + column]));
      scales.typed_data()[b * n + column] = scale_of_largest(largest, m);
    }
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_CPU_H_
