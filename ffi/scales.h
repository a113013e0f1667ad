// The scales of the fused update's columns, on the host: exact powers of two.
#ifndef JAXQR_FFI_SCALES_H_
#define JAXQR_FFI_SCALES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace jaxqr {

// A scale for columns of `rows` elements of at most 2: a power of two that leaves room in fp16 for a column that
// gathers in one element.
inline float column_scale(int64_t rows) {
  float scale = 0x1p14f;
  for (int64_t reach = 1; reach < rows; reach *= 4) scale /= 2;
  return scale;
}

// The scale of a column with this largest magnitude: what brings it into [1, 2) times that one, as far as they and
// their reciprocals are normal numbers. 0, Inf and NaN count as 1.
inline float scale_of_largest(float largest, int64_t rows) {
  const auto limited = [](int exponent) { return std::clamp(exponent, -126, 126); };
  const int exponent = largest == 0 || !std::isfinite(largest) ? 0 : limited(-std::ilogb(largest));
  return std::ldexp(1.0f, limited(exponent + std::ilogb(column_scale(rows))));
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_SCALES_H_
