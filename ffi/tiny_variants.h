// The compiled variants of the tiny-regime kernel, one row each: X(column_lanes, cols_per_lane, row_lanes, warps,
// rows_per_lane).
//
// A matrix is factored by column_lanes·row_lanes lanes of each of `warps` warps; a lane holds `rows_per_lane` rows of
// `cols_per_lane` columns in registers. So a variant covers column_lanes·cols_per_lane columns and
// row_lanes·warps·rows_per_lane rows, and a warp works on 32/(column_lanes·row_lanes) matrices. Many columns a lane
// mean few instructions a matrix, few columns a lane a short chain from one reflector to the next. The list is plain
// C++: the native module shows it to jaxqr/schedule.py, which chooses.
#ifndef JAXQR_FFI_TINY_VARIANTS_H_
#define JAXQR_FFI_TINY_VARIANTS_H_

#define JAXQR_TINY_VARIANTS(X) \
  X(8, 1, 1, 1, 8)             \
  X(8, 1, 1, 1, 32)            \
  X(8, 2, 1, 1, 16)            \
  X(16, 1, 1, 1, 64)           \
  X(32, 1, 1, 1, 32)           \
  X(16, 2, 1, 1, 32)           \
  X(32, 2, 1, 1, 64)           \
  X(16, 2, 2, 1, 32)           \
  X(8, 2, 4, 1, 32)            \
  X(8, 4, 4, 1, 32)            \
  X(8, 4, 4, 2, 32)

#endif  // JAXQR_FFI_TINY_VARIANTS_H_
