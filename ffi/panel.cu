// Compiles the CTA-regime panel kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "panel.h"
#include "panel_kernel.cuh"
#include "panel_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

template <int kCols, int kRows, int kMaxWarps>
int shared_bytes_of(int64_t width, bool has_t) {
  const int warps = static_cast<int>((width + kCols - 1) / kCols);
  return static_cast<int>(sizeof(PanelScalars<kCols * kMaxWarps>)) + 4 * warps * kCols * 32 * kRows +
         (has_t ? 4 * kProductsSide * kProductsSide : 0);
}

// From row `first_row` on, the rows of the panel's columns as `split` says.
template <int kCols, int kRows, int kMaxWarps>
cudaError_t launch(const PanelShape& shape, int64_t first_row, const RowSplit& split, const float* src, float* h,
                   float* tau, float* t, __half* halves, cudaStream_t stream) {
  const auto kernel = panel_kernel<kCols, kRows, kMaxWarps>;
  const int shared_bytes = shared_bytes_of<kCols, kRows, kMaxWarps>(shape.width, t != nullptr);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int threads = 32 * static_cast<int>((shape.width + kCols - 1) / kCols);
  const int64_t stride = shape.m * shape.n, corner = first_row * shape.n + shape.offset,
                matrices = kMaxGrid / split.blocks, rows = split.rows_of(0);
  int device, processors, resident;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes);
  if (error != cudaSuccess) return error;
  for (int64_t first = 0; first < shape.batch; first += matrices) {
    const int64_t grid = std::min(shape.batch - first, matrices) * split.blocks;
    kernel<<<static_cast<unsigned>(grid), threads, shared_bytes, stream>>>(
        src + first * stride + corner, h + first * stride + corner, tau + first * split.blocks * shape.width,
        t == nullptr ? nullptr : t + first * shape.width * shape.width,
        t == nullptr ? nullptr : halves + first * rows * 2 * reflector_pitch(shape.width), stride, shape.n, split,
        static_cast<int>(shape.width), processors * resident);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool same(const PanelVariant& variant, int64_t cols_per_warp, int64_t rows_per_lane) {
  return variant.cols_per_warp == cols_per_warp && variant.rows_per_lane == rows_per_lane;
}

const char* mismatch(const PanelVariant& variant, int64_t rows, int64_t width) {
#define JAXQR_CHECK(cols_per_warp, rows_per_lane, max_warps)                                         \
  if (same(variant, cols_per_warp, rows_per_lane)) {                                                 \
    if (rows > 32 * (rows_per_lane)) return "the variant does not hold that many rows";              \
    if (width > (cols_per_warp) * (max_warps)) return "the variant does not hold that many columns"; \
    return nullptr;                                                                                  \
  }
  JAXQR_PANEL_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

cudaError_t launch_variant(const PanelVariant& variant, const PanelShape& shape, int64_t first_row,
                           const RowSplit& split, const float* src, float* h, float* tau, float* t, __half* halves,
                           cudaStream_t stream) {
#define JAXQR_LAUNCH(cols_per_warp, rows_per_lane, max_warps) \
  if (same(variant, cols_per_warp, rows_per_lane))            \
    return launch<cols_per_warp, rows_per_lane, max_warps>(shape, first_row, split, src, h, tau, t, halves, stream);
  JAXQR_PANEL_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace

const char* panel_variant_mismatch(const PanelVariant& variant, const PanelShape& shape) {
  return mismatch(variant, shape.m - shape.offset, shape.width);
}

const char* panel_variant_mismatch(const PanelVariant& variant, const LeavesShape& shape) {
  return mismatch(variant, shape.split().highest(), shape.width);
}

int64_t panel_shared_bytes(const PanelVariant& variant, int64_t width, bool has_t) {
#define JAXQR_BYTES(cols_per_warp, rows_per_lane, max_warps) \
  if (same(variant, cols_per_warp, rows_per_lane))           \
    return shared_bytes_of<cols_per_warp, rows_per_lane, max_warps>(width, has_t);
  JAXQR_PANEL_VARIANTS(JAXQR_BYTES)
#undef JAXQR_BYTES
  return 0;
}

cudaError_t launch_panel(const PanelVariant& variant, const PanelShape& shape, const float* src, float* h, float* tau,
                         float* t, __half* halves, cudaStream_t stream) {
  return launch_variant(variant, shape, shape.offset, RowSplit(shape.m - shape.offset, 1, 1), src, h, tau, t, halves,
                        stream);
}

cudaError_t launch_panel_leaves(const PanelVariant& variant, const LeavesShape& shape, const float* src, float* h,
                                float* tau, cudaStream_t stream) {
  const PanelShape panel{shape.batch, shape.m, shape.n, shape.offset, shape.width};
  return launch_variant(variant, panel, shape.offset + shape.width, shape.split(), src, h, tau, nullptr, nullptr,
                        stream);
}

}  // namespace jaxqr
