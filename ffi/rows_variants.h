// The compiled variants of the rows-regime panel kernel, one row each: X(cols_per_lane, rows_per_lane, warps).
//
// A lane holds `rows_per_lane` rows of `cols_per_lane` columns in registers, so a variant covers 8·cols_per_lane
// columns and 4·rows_per_lane·warps rows. The list is plain C++: the native module shows it to jaxqr/schedule.py, which
// chooses.
#ifndef JAXQR_FFI_ROWS_VARIANTS_H_
#define JAXQR_FFI_ROWS_VARIANTS_H_

#define JAXQR_ROWS_VARIANTS(X) \
  X(4, 32, 1)                  \
  X(4, 32, 4)                  \
  X(4, 32, 8)                  \
  X(4, 16, 4)                  \
  X(8, 16, 2)                  \
  X(8, 16, 4)                  \
  X(8, 16, 6)                  \
  X(8, 16, 8)

#endif  // JAXQR_FFI_ROWS_VARIANTS_H_
