// The compiled variants of the wide-regime kernel, one row each: X(rows, cols_per_lane).
//
// `rows` lanes have the first columns, one each, of a matrix with at most as many rows, and cols_per_lane - 1 of the
// others each: a chunk of rows·(cols_per_lane - 1) columns. A warp works on 32/rows chunks.
#ifndef JAXQR_FFI_WIDE_VARIANTS_H_
#define JAXQR_FFI_WIDE_VARIANTS_H_

#define JAXQR_WIDE_VARIANTS(X) \
  X(8, 4)                      \
  X(8, 8)                      \
  X(16, 2)                     \
  X(16, 4)                     \
  X(32, 2)

#endif  // JAXQR_FFI_WIDE_VARIANTS_H_
