// Host interface of the fused block-reflector update: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_BLOCK_REFLECTOR_H_
#define JAXQR_FFI_BLOCK_REFLECTOR_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxqr {

// The widest block reflector of the fused update.
inline constexpr int64_t kMaxBlockReflectorWidth = 64;

// Columns first … last of `batch` row-major m×n matrices, updated by a block of `width` reflectors whose first row is
// `offset`: C. Its first `known` rows and columns are the identity's, and are not read. The launch shares the device
// with others like it: so many go `at_once`.
struct BlockReflectorShape {
  int64_t batch, m, n, offset, width, first, last, known = 0, at_once = 1;

  bool all_known() const { return known > 0 && (known >= m - offset || known >= last - first); }
};

// C ← C - V·Tᵀ·(Vᵀ·C) with `transpose`, as a factorization does, otherwise C ← C - V·T·(Vᵀ·C), for C read from `src`
// (which may be `h`) and written to `h`; V as `halves` (reflector_halves.h) and t[batch, width, width] come from the
// panel or from reflectors.h.
//
// scales[batch, n] holds an exact power of two for each column. Without `make_scales` those of the updated columns are
// read, and have been made by an earlier update with the same m from rows that included these: orthogonal updates let
// no column grow past them. With it the update makes its own on the way. Then, and with `remake_scales`, those for
// later updates are made from what is written, and serve any next update with the same m of rows whose part outside C,
// if there is one, is zero. Asynchronous on `stream`; allocates nothing.
cudaError_t launch_block_reflector(const BlockReflectorShape& shape, float* h, const __half* halves, const float* t,
                                   bool transpose, float* scales, bool make_scales, bool remake_scales,
                                   const float* src, cudaStream_t stream);

// Floats a matrix of what couples two neighbouring block reflectors.
inline constexpr int64_t kCouplingFloats = 3 * 64 * 64 + 4;

// Makes it for the block reflector of `second` and the one of `first_width` columns left of it; `h` holds the vectors
// of the first. Nothing where the two are applied one after the other.
cudaError_t launch_coupling(const BlockReflectorShape& second, int64_t first_width, const float* h,
                            const float* const (&t)[2], const __half* halves, float* coupling, cudaStream_t stream);

// What launch_block_reflector does with `transpose`, by the block reflector of `shape` and then by the one of
// `second_width` columns right of it, in one pass over C where it can. `coupling` is theirs and serves once for the
// columns right of both from the first one on, and once for others: what is done is counted in it.
cudaError_t launch_two_block_reflectors(const BlockReflectorShape& shape, int64_t second_width, float* h,
                                        const __half* const (&halves)[2], const float* const (&t)[2], float* coupling,
                                        float* scales, bool make_scales, const float* src, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_BLOCK_REFLECTOR_H_
