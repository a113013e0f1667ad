// The update of the columns right of a tall panel: its size, and that of the workspace it takes. Plain C++, for the CPU
// and the CUDA handlers.
#ifndef JAXQR_FFI_TALL_UPDATE_SHAPE_H_
#define JAXQR_FFI_TALL_UPDATE_SHAPE_H_

#include <cstdint>

namespace jaxqr {

// Rows whose products VᵀV and VᵀC are summed by one CTA.
inline constexpr int64_t kTallChunkRows = 256;

// Of `batch` row-major m×n matrices the reflectors in the columns offset … offset+width, from row `offset` on, and C
// right of them.
//
// The workspace of a matrix is one block for each chunk of rows, and one for their sums. A block has a row for each
// reflector, in whole sets of 32, of `pitch` floats: VᵀV in the first side() columns, VᵀC in the others; and one more
// row with the largest magnitude of each column in the chunk, or with the columns' scales.
struct TallUpdateShape {
  int64_t batch, m, n, offset, width;

  int64_t rows() const { return m - offset; }
  int64_t columns() const { return n - offset - width; }
  int64_t chunks() const { return (rows() + kTallChunkRows - 1) / kTallChunkRows; }
  int64_t side() const { return width <= 32 ? 32 : 64; }
  int64_t pitch() const { return side() + (columns() + 31) / 32 * 32; }
  int64_t workspace() const { return (chunks() + 1) * (side() + 1) * pitch(); }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_TALL_UPDATE_SHAPE_H_
