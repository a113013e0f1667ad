// The compiled variants of the cluster-regime panel kernel, one row each: X(rows_per_lane, cols_per_lane, max_warps).
//
// A lane holds `rows_per_lane` rows of `cols_per_lane` columns in registers, beside its part of the panel's first width
// rows, so a cluster of c CTAs covers panels of up to 32·rows_per_lane·c + width rows and cols_per_lane·max_warps
// columns. Fewer columns a lane mean shorter steps, more warps in each other's way. The list is plain C++: the native
// module shows it to jaxqr/schedule.py, which chooses, also the number of CTAs.
#ifndef JAXQR_FFI_CLUSTER_VARIANTS_H_
#define JAXQR_FFI_CLUSTER_VARIANTS_H_

#define JAXQR_CLUSTER_VARIANTS(X) \
  X(4, 4, 8)                      \
  X(8, 4, 8)                      \
  X(16, 4, 8)                     \
  X(4, 8, 8)                      \
  X(8, 8, 8)                      \
  X(16, 8, 8)

#endif  // JAXQR_FFI_CLUSTER_VARIANTS_H_
