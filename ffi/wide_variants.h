// The compiled variants of the wide-regime kernel, one row each: X(rows, cols_per_lane).
//
// Up to kMaxWideLanes rows, `rows` lanes have the first columns, one each, of a matrix with at most as many rows, and
// cols_per_lane - 1 of the others each: a chunk of rows·(cols_per_lane - 1) columns. A warp works on 32/rows chunks.
// With more rows the first columns are a panel of the CTA regime, by its variant (4, 4), and then every lane has
// cols_per_lane of the others.
#ifndef JAXQR_FFI_WIDE_VARIANTS_H_
#define JAXQR_FFI_WIDE_VARIANTS_H_

#define JAXQR_WIDE_VARIANTS(X) \
  X(8, 4)                      \
  X(8, 8)                      \
  X(16, 2)                     \
  X(16, 4)                     \
  X(32, 2)                     \
  X(64, 2)

namespace jaxqr {

inline constexpr int kMaxWideLanes = 32;

}  // namespace jaxqr

#endif  // JAXQR_FFI_WIDE_VARIANTS_H_
