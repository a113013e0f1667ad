// Compiles the narrow-regime kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "narrow.h"
#include "narrow_kernel.cuh"
#include "narrow_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

template <int kCols, int kLanes, int kWarps, int kRows>
cudaError_t launch(const TinyShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  constexpr int64_t kThreads = 32 * kNarrowWarps<kWarps>, kMatrices = kThreads / (kLanes * kWarps);  // of a CTA
  for (int64_t first = 0; first < shape.batch; first += kMaxGrid * kMatrices) {
    const int64_t count = std::min(shape.batch - first, kMaxGrid * kMatrices), size = shape.m * kCols;
    narrow_kernel<kCols, kLanes, kWarps, kRows>
        <<<static_cast<unsigned>((count + kMatrices - 1) / kMatrices), kThreads, 0, stream>>>(
            src + first * size, h + first * size, tau + first * kCols, count, static_cast<int>(shape.m));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <int kLanes, int kWarps, int kRows>
cudaError_t launch_width(const TinyShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  static_assert(kMaxNarrowWidth == 4, "a kernel for each number of columns");
  const auto launch_columns = shape.n == 1   ? launch<1, kLanes, kWarps, kRows>
                              : shape.n == 2 ? launch<2, kLanes, kWarps, kRows>
                              : shape.n == 3 ? launch<3, kLanes, kWarps, kRows>
                                             : launch<4, kLanes, kWarps, kRows>;
  return launch_columns(shape, src, h, tau, stream);
}

bool same(const NarrowVariant& variant, int64_t lanes, int64_t warps, int64_t rows_per_lane) {
  return variant.lanes == lanes && variant.warps == warps && variant.rows_per_lane == rows_per_lane;
}

}  // namespace

const char* narrow_variant_mismatch(const NarrowVariant& variant, const TinyShape& shape) {
#define JAXQR_CHECK(lanes, warps, rows_per_lane)                                                                 \
  if (same(variant, lanes, warps, rows_per_lane)) {                                                              \
    if (shape.n < 1 || shape.n > kMaxNarrowWidth) return "narrow kernels take up to four columns";               \
    if (shape.m < shape.n) return "narrow kernels take at least as many rows as columns";                        \
    return shape.m > (lanes) * (warps) * (rows_per_lane) ? "the variant does not hold that many rows" : nullptr; \
  }
  JAXQR_NARROW_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

cudaError_t launch_narrow(const NarrowVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                          cudaStream_t stream) {
#define JAXQR_LAUNCH(lanes, warps, rows_per_lane) \
  if (same(variant, lanes, warps, rows_per_lane)) \
    return launch_width<lanes, warps, rows_per_lane>(shape, src, h, tau, stream);
  JAXQR_NARROW_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace jaxqr
