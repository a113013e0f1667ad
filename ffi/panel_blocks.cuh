// Where the panels of a launch lie: a thread block of the CTA regime takes a panel or, of a tall one, a block of rows.
#ifndef JAXQR_FFI_PANEL_BLOCKS_CUH_
#define JAXQR_FFI_PANEL_BLOCKS_CUH_

#include <cstdint>

#include "leaves.h"
#include "ptx.cuh"

namespace jaxqr {

struct PanelBlocks {
  int64_t matrix_stride, row_stride;
  RowSplit split;

  __device__ __forceinline__ int rows_of(unsigned index) const {
    return split.rows_of(static_cast<int>(index % split.blocks));
  }
  // Of the block's first element.
  __device__ __forceinline__ int64_t corner_of(unsigned index) const {
    return index / split.blocks * matrix_stride + split.first_row(static_cast<int>(index % split.blocks)) * row_stride;
  }
  // Whether rows of `width` columns at `corner` are whole words of four at multiples of 16 bytes.
  __device__ __forceinline__ bool whole_words(const float* corner, int width) const {
    return (row_stride | width) % 4 == 0 && reinterpret_cast<uintptr_t>(corner) % sizeof(float4) == 0;
  }
  // By all threads: the rows of a block that comes later start to the L2 cache, by lines of 32 floats.
  __device__ __forceinline__ void prefetch(const float* src, unsigned index, int width) const {
    const float* const source = src + corner_of(index);
    const int rows = rows_of(index);
    for (int row = threadIdx.x; row < rows; row += blockDim.x) {
      for (int column = 0; column < width; column += 32) ptx::prefetch(source + row * row_stride + column);
    }
  }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_BLOCKS_CUH_
