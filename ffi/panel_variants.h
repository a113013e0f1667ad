// The compiled variants of the CTA-regime panel kernel, one row each: X(row_lanes, rows_per_lane, cols_per_lane,
// max_warps).
//
// A warp's 32 lanes form a grid of `row_lanes` × 32/row_lanes. A lane holds `rows_per_lane` rows of `cols_per_lane`
// columns in registers, so a variant covers panels of up to row_lanes·rows_per_lane rows, and a warp covers
// 32/row_lanes·cols_per_lane columns. More row lanes mean longer reductions; fewer mean more registers a lane for the
// same rows. `max_warps` bounds the CTA, and with it the registers that the compiler may use. The list is plain C++:
// the native module shows it to jaxqr/schedule.py, which chooses.
#ifndef JAXQR_FFI_PANEL_VARIANTS_H_
#define JAXQR_FFI_PANEL_VARIANTS_H_

#define JAXQR_PANEL_VARIANTS(X) \
  X(8, 4, 1, 8)                 \
  X(8, 4, 8, 2)                 \
  X(8, 8, 2, 8)                 \
  X(8, 16, 2, 16)               \
  X(8, 24, 3, 16)               \
  X(16, 16, 2, 16)              \
  X(16, 24, 2, 16)              \
  X(16, 32, 2, 16)              \
  X(32, 32, 2, 16)              \
  X(32, 64, 1, 16)

#endif  // JAXQR_FFI_PANEL_VARIANTS_H_
