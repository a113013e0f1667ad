// Compiles the panel kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "panel.h"
#include "panel_kernel.cuh"
#include "panel_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

template <int kRowLanes, int kRowsPerLane, int kCols, int kMaxWarps>
cudaError_t launch(const PanelShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  constexpr int kWarpCols = 32 / kRowLanes * kCols;
  const auto kernel = panel_kernel<kRowLanes, kRowsPerLane, kCols, kMaxWarps>;
  const int width = static_cast<int>(shape.width), rows = static_cast<int>(shape.m - shape.offset);
  const int threads = 32 * ((width + kWarpCols - 1) / kWarpCols);
  constexpr int kMaxWidth = kPanelMaxWidth<kRowLanes, kRowsPerLane, kCols, kMaxWarps>;
  const int shared_bytes = panel_shared_bytes<kMaxWidth>(kRowLanes * kRowsPerLane, width);
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) return error;
  }
  const int64_t stride = shape.m * shape.n, corner = shape.offset * shape.n + shape.offset;
  for (int64_t first = 0; first < shape.batch; first += kMaxGrid) {
    const unsigned grid = static_cast<unsigned>(std::min(shape.batch - first, kMaxGrid));
    kernel<<<grid, threads, shared_bytes, stream>>>(src + first * stride + corner, h + first * stride + corner,
                                                    tau + first * width, stride, shape.n, rows, width);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool same(const PanelVariant& variant, int64_t row_lanes, int64_t rows_per_lane, int64_t cols_per_lane) {
  return variant.row_lanes == row_lanes && variant.rows_per_lane == rows_per_lane &&
         variant.cols_per_lane == cols_per_lane;
}

}  // namespace

const char* panel_variant_mismatch(const PanelVariant& variant, const PanelShape& shape) {
#define JAXQR_CHECK(row_lanes, rows_per_lane, cols_per_lane, max_warps)                                            \
  if (same(variant, row_lanes, rows_per_lane, cols_per_lane)) {                                                    \
    if (shape.m - shape.offset > (row_lanes) * (rows_per_lane)) return "the variant does not hold that many rows"; \
    if (shape.width > 32 / (row_lanes) * (cols_per_lane) * (max_warps))                                            \
      return "the variant does not hold that many columns";                                                        \
    return nullptr;                                                                                                \
  }
  JAXQR_PANEL_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

int64_t panel_shared_bytes(const PanelVariant& variant, int64_t width) {
#define JAXQR_BYTES(row_lanes, rows_per_lane, cols_per_lane, max_warps)                            \
  if (same(variant, row_lanes, rows_per_lane, cols_per_lane))                                      \
    return panel_shared_bytes<kPanelMaxWidth<row_lanes, rows_per_lane, cols_per_lane, max_warps>>( \
        (row_lanes) * (rows_per_lane), static_cast<int>(width));
  JAXQR_PANEL_VARIANTS(JAXQR_BYTES)
#undef JAXQR_BYTES
  return 0;
}

cudaError_t launch_panel(const PanelVariant& variant, const PanelShape& shape, const float* src, float* h, float* tau,
                         cudaStream_t stream) {
#define JAXQR_LAUNCH(row_lanes, rows_per_lane, cols_per_lane, max_warps) \
  if (same(variant, row_lanes, rows_per_lane, cols_per_lane))            \
    return launch<row_lanes, rows_per_lane, cols_per_lane, max_warps>(shape, src, h, tau, stream);
  JAXQR_PANEL_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace jaxqr
