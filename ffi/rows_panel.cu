// Compiles the rows-regime panel kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "rows_panel.h"
#include "rows_panel_kernel.cuh"
#include "rows_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

// From row `first_row` on, the rows of the panel's columns as `split` says.
template <int kCols, int kRows, int kWarps>
cudaError_t launch(const PanelShape& shape, int64_t first_row, const RowSplit& split, const float* src, float* h,
                   float* tau, float* t, __half* halves, cudaStream_t stream) {
  const auto kernel = rows_panel_kernel<kCols, kRows, kWarps>;
  const int shared_bytes = sizeof(RowsShared<kCols, kRows, kWarps>);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int64_t stride = shape.m * shape.n, corner = first_row * shape.n + shape.offset,
                matrices = kMaxGrid / split.blocks, rows = split.rows_of(0);
  for (int64_t first = 0; first < shape.batch; first += matrices) {
    const int64_t grid = std::min(shape.batch - first, matrices) * split.blocks;
    kernel<<<static_cast<unsigned>(grid), 32 * kWarps, shared_bytes, stream>>>(
        src + first * stride + corner, h + first * stride + corner, tau + first * split.blocks * shape.width,
        t == nullptr ? nullptr : t + first * shape.width * shape.width,
        t == nullptr ? nullptr : halves + first * rows * 2 * reflector_pitch(shape.width), stride, shape.n, split,
        static_cast<int>(shape.width));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool same(const RowsVariant& variant, int64_t cols_per_lane, int64_t rows_per_lane, int64_t warps) {
  return variant.cols_per_lane == cols_per_lane && variant.rows_per_lane == rows_per_lane && variant.warps == warps;
}

const char* mismatch(const RowsVariant& variant, int64_t rows, int64_t width) {
#define JAXQR_CHECK(cols_per_lane, rows_per_lane, warps)                                         \
  if (same(variant, cols_per_lane, rows_per_lane, warps)) {                                      \
    if (rows > 4 * (rows_per_lane) * (warps)) return "the variant does not hold that many rows"; \
    if (width > 8 * (cols_per_lane)) return "the variant does not hold that many columns";       \
    return nullptr;                                                                              \
  }
  JAXQR_ROWS_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

cudaError_t launch_variant(const RowsVariant& variant, const PanelShape& shape, int64_t first_row,
                           const RowSplit& split, const float* src, float* h, float* tau, float* t, __half* halves,
                           cudaStream_t stream) {
#define JAXQR_LAUNCH(cols_per_lane, rows_per_lane, warps) \
  if (same(variant, cols_per_lane, rows_per_lane, warps)) \
    return launch<cols_per_lane, rows_per_lane, warps>(shape, first_row, split, src, h, tau, t, halves, stream);
  JAXQR_ROWS_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace

const char* rows_variant_mismatch(const RowsVariant& variant, const PanelShape& shape) {
  return mismatch(variant, shape.m - shape.offset, shape.width);
}

const char* rows_variant_mismatch(const RowsVariant& variant, const LeavesShape& shape) {
  return mismatch(variant, shape.split().highest(), shape.width);
}

int64_t rows_shared_bytes(const RowsVariant& variant) {
#define JAXQR_BYTES(cols_per_lane, rows_per_lane, warps)  \
  if (same(variant, cols_per_lane, rows_per_lane, warps)) \
    return sizeof(RowsShared<cols_per_lane, rows_per_lane, warps>);
  JAXQR_ROWS_VARIANTS(JAXQR_BYTES)
#undef JAXQR_BYTES
  return 0;
}

cudaError_t launch_rows_panel(const RowsVariant& variant, const PanelShape& shape, const float* src, float* h,
                              float* tau, float* t, __half* halves, cudaStream_t stream) {
  return launch_variant(variant, shape, shape.offset, RowSplit(shape.m - shape.offset, 1, 1), src, h, tau, t, halves,
                        stream);
}

cudaError_t launch_rows_leaves(const RowsVariant& variant, const LeavesShape& shape, const float* src, float* h,
                               float* tau, cudaStream_t stream) {
  const PanelShape panel{shape.batch, shape.m, shape.n, shape.offset, shape.width};
  return launch_variant(variant, panel, shape.offset + shape.width, shape.split(), src, h, tau, nullptr, nullptr,
                        stream);
}

}  // namespace jaxqr
