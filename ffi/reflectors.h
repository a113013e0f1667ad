// Host interface of the kernel that makes block reflectors of a factorization's compact form: plain C++ and CUDA
// runtime types, no XLA.
#ifndef JAXQR_FFI_REFLECTORS_H_
#define JAXQR_FFI_REFLECTORS_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace jaxqr {

// One block of columns, and where its results go: t[batch, width, width], halves as in reflector_halves.h.
struct ReflectorBlock {
  float* t;
  __half* halves;
  int64_t offset, width;
};

// The widest block, and the widest panel that gets T.
inline constexpr int64_t kMaxReflectorsWidth = 64;

// Blocks of at most so many columns take VᵀV and T in float64: their few roundings do not average out.
inline constexpr int64_t kNarrowReflectors = 8;

// `batch` row-major m×n matrices, and k values of tau for each, those of the columns from `first` on.
struct ReflectorShape {
  int64_t batch, m, n, first, k;
};

// For each of `blocks`, T and V with I - V·T·Vᵀ = H_offset … H_{offset+width-1}, from the vectors below the diagonal of
// `h` and from tau[batch, k]. A column of V with entries of 2 and more is scaled by a power of two, and T with it:
// LAPACK makes no such column, but a product of any reflectors is one with V in the range of halves. Asynchronous on
// `stream`; allocates nothing.
cudaError_t launch_reflectors(const ReflectorShape& shape, const std::vector<ReflectorBlock>& blocks, const float* h,
                              const float* tau, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTORS_H_
