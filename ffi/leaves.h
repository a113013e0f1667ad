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

// Rows cut into `blocks` of nearly equal height, each of whole units but for the last one, which also has the rest.
struct RowSplit {
  int blocks, unit;
  int height, higher;  // units of a lower block; how many blocks have one unit more, the first ones
  int rest;

  RowSplit(int64_t rows, int64_t blocks, int64_t unit)
      : blocks(static_cast<int>(blocks)),
        unit(static_cast<int>(unit)),
        height(static_cast<int>(rows / unit / blocks)),
        higher(static_cast<int>(rows / unit % blocks)),
        rest(static_cast<int>(rows % unit)) {}

  int highest() const { return std::max(rows_of(0), rows_of(blocks - 1)); }
  JAXQR_HOST_DEVICE int rows_of(int block) const {
    return unit * (height + (block < higher)) + (block == blocks - 1 ? rest : 0);
  }
  JAXQR_HOST_DEVICE int64_t first_row(int block) const {
    return unit * (int64_t{height} * block + (block < higher ? block : higher));
  }
};

// The columns offset … offset+width of `batch` row-major m×n matrices, from row `offset` on, with the rows from
// offset+width on in `leaves` blocks of at least `width` rows, whose boundaries are multiples of `width`: where the
// matrix is itself a stack of triangles, its reflectors then are upper triangular in every part, to the bit, which the
// lift relies on.
struct LeavesShape {
  int64_t batch, m, n, offset, width, leaves;

  RowSplit split() const { return RowSplit(m - offset - width, leaves, width); }
  int64_t stack_rows() const { return (1 + leaves) * width; }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_LEAVES_H_
