// The compiled variants of the narrow-regime kernel, one row each: X(lanes, warps, rows_per_lane).
//
// `lanes` of each of `warps` warps factor a matrix of up to four columns, and hold `rows_per_lane` rows each. The list
// is plain C++: the native module shows it to jaxqr/schedule.py, which chooses.
#ifndef JAXQR_FFI_NARROW_VARIANTS_H_
#define JAXQR_FFI_NARROW_VARIANTS_H_

#include <cstdint>

namespace jaxqr {

// The most columns.
inline constexpr int64_t kMaxNarrowWidth = 4;

}  // namespace jaxqr

#define JAXQR_NARROW_VARIANTS(X) \
  X(8, 1, 8)                     \
  X(8, 1, 16)                    \
  X(32, 1, 8)                    \
  X(32, 8, 8)                    \
  X(32, 16, 16)

#endif  // JAXQR_FFI_NARROW_VARIANTS_H_
