// Compiles the tiny-regime kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "tiny.h"
#include "tiny_kernel.cuh"
#include "tiny_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

template <int kColumnLanes, int kCols, int kRowLanes, int kWarps, int kRows>
cudaError_t launch(const TinyShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  constexpr int kCtaWarps = kTinyWarps<kCols, kWarps, kRows>;
  constexpr int64_t kMatrices = 32 / (kColumnLanes * kRowLanes) * kCtaWarps / kWarps;  // of a CTA
  const int64_t size = shape.m * shape.n, pivots = std::min(shape.m, shape.n);
  for (int64_t first = 0; first < shape.batch; first += kMaxGrid * kMatrices) {
    const int64_t count = std::min(shape.batch - first, kMaxGrid * kMatrices);
    tiny_kernel<kColumnLanes, kCols, kRowLanes, kWarps, kRows>
        <<<static_cast<unsigned>((count + kMatrices - 1) / kMatrices), 32 * kCtaWarps, 0, stream>>>(
            src + first * size, h + first * size, tau + first * pivots, count, static_cast<int>(shape.m),
            static_cast<int>(shape.n));
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool same(const TinyVariant& variant, int64_t column_lanes, int64_t cols_per_lane, int64_t row_lanes, int64_t warps,
          int64_t rows_per_lane) {
  return variant.column_lanes == column_lanes && variant.cols_per_lane == cols_per_lane &&
         variant.row_lanes == row_lanes && variant.warps == warps && variant.rows_per_lane == rows_per_lane;
}

}  // namespace

const char* tiny_variant_mismatch(const TinyVariant& variant, const TinyShape& shape) {
#define JAXQR_CHECK(column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane)    \
  if (same(variant, column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane)) { \
    if (shape.m < 1 || shape.m > (row_lanes) * (warps) * (rows_per_lane))            \
      return "the variant does not hold that many rows";                             \
    if (shape.n < 1 || shape.n > (column_lanes) * (cols_per_lane))                   \
      return "the variant does not hold that many columns";                          \
    return nullptr;                                                                  \
  }
  JAXQR_TINY_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

cudaError_t launch_tiny(const TinyVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                        cudaStream_t stream) {
#define JAXQR_LAUNCH(column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane) \
  if (same(variant, column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane)) \
    return launch<column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane>(shape, src, h, tau, stream);
  JAXQR_TINY_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace jaxqr
