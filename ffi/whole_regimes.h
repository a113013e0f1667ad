// Which regimes factor whole matrices.
#ifndef JAXQR_FFI_WHOLE_REGIMES_H_
#define JAXQR_FFI_WHOLE_REGIMES_H_

#include <string_view>

namespace jaxqr {

// Whether the regime's kernels factor all columns of a matrix, also those right of the last pivot, and not a panel's
// alone.
inline bool factors_all_columns(std::string_view regime) {
  return regime == "narrow" || regime == "tiny" || regime == "wide";
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_WHOLE_REGIMES_H_
