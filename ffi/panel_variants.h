// The compiled variants of the CTA-regime panel kernel, one row each: X(cols_per_warp, rows_per_lane, max_warps).
//
// A lane holds `rows_per_lane` rows of its warp's columns in registers, so a variant covers 32·rows_per_lane rows and
// cols_per_warp·max_warps columns, or up to 64 if its warps take turns with them. `max_warps` bounds the CTA, and with
// it the registers that the compiler may use. The list is plain C++: the native module shows it to jaxqr/schedule.py,
// which chooses.
#ifndef JAXQR_FFI_PANEL_VARIANTS_H_
#define JAXQR_FFI_PANEL_VARIANTS_H_

#define JAXQR_PANEL_VARIANTS(X) \
  X(4, 4, 32)                   \
  X(4, 8, 16)                   \
  X(4, 12, 16)                  \
  X(4, 16, 16)                  \
  X(4, 20, 12)                  \
  X(4, 24, 12)                  \
  X(4, 28, 8)                   \
  X(4, 32, 8)

#endif  // JAXQR_FFI_PANEL_VARIANTS_H_
