// Tall panels: the rows below a panel's first `width` are cut into leaves, which are factored independently.
//
// With A = [A_top; Q_1·R_1; …; Q_p·R_p] = diag(I, Q_1, …, Q_p)·S, where S stacks A_top and the triangles R_i, and with
// reflectors I - tau·v·vᵀ that factor S, the reflectors with the vectors diag(I, Q_1, …, Q_p)·v and the same tau factor
// A: they are reflectors, as the Q_i keep norms, and take A to diag(I, Q_1, …, Q_p)·[R; 0] = [R; 0]. So R, tau and the
// signs of S's factorization are A's, and as A_top stays out of the leaves, its vectors have the right form: a unit
// lower triangle on top. Plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_LEAVES_H_
#define JAXQR_FFI_LEAVES_H_

#include <algorithm>
#include <cstdint>

#ifdef __CUDACC__
#define JAXQR_HOST_DEVICE __host__ __device__
#else
#define JAXQR_HOST_DEVICE
#endif

namespace jaxqr {

// `rows` rows cut into `blocks` of nearly equal height, the higher ones first.
struct RowSplit {
  int height, higher;  // of a lower block; how many have one row more

  RowSplit(int64_t rows, int64_t blocks)
      : height(static_cast<int>(rows / blocks)), higher(static_cast<int>(rows % blocks)) {}

  int highest() const { return height + (higher > 0); }
  JAXQR_HOST_DEVICE int rows_of(int block) const { return height + (block < higher); }
  JAXQR_HOST_DEVICE int64_t first_row(int block) const {
    return int64_t{height} * block + (block < higher ? block : higher);
  }
};

// The columns offset … offset+width of `batch` row-major m×n matrices, from row `offset` on, with the rows from
// offset+width on in `leaves` blocks of at least `width` rows.
struct LeavesShape {
  int64_t batch, m, n, offset, width, leaves;

  RowSplit split() const { return RowSplit(m - offset - width, leaves); }
  int64_t stack_rows() const { return (1 + leaves) * width; }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_LEAVES_H_
