// Compiles the cluster panel kernel's variants and launches them by name of their parameters.
#include <algorithm>

#include "cluster_panel.h"
#include "cluster_panel_kernel.cuh"
#include "cluster_variants.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

// The largest cluster that every device with clusters takes without being asked.
constexpr int64_t kPortableCtas = 8;

template <int kRowsPerLane, int kCols, int kMaxWarps>
cudaError_t launch(int64_t ctas, const PanelShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  const auto kernel = cluster_panel_kernel<kRowsPerLane, kCols, kMaxWarps>;
  const int width = static_cast<int>(shape.width), rows = static_cast<int>(shape.m - shape.offset);
  const int shared_bytes = cluster_shared_bytes<kCols, kMaxWarps>(kRowsPerLane, width);
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  if (ctas > kPortableCtas) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }

  const int64_t stride = shape.m * shape.n, corner = shape.offset * shape.n + shape.offset;
  src += corner;
  h += corner;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % sizeof(float4) == 0; };
  const bool vectors = aligned(src) && aligned(h) && shape.n % 4 == 0;

  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(ctas), 1, 1};
  cudaLaunchConfig_t config = {};
  config.blockDim = static_cast<unsigned>(32 * ((width + kCols - 1) / kCols));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  for (int64_t first = 0; first < shape.batch; first += kMaxGrid / ctas) {
    config.gridDim = static_cast<unsigned>(ctas * std::min(shape.batch - first, kMaxGrid / ctas));
    error = cudaLaunchKernelEx(&config, kernel, src + first * stride, h + first * stride, tau + first * width, stride,
                               shape.n, rows, width, static_cast<int>(ctas), vectors);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

bool same(const ClusterVariant& variant, int64_t rows_per_lane, int64_t cols_per_lane) {
  return variant.rows_per_lane == rows_per_lane && variant.cols_per_lane == cols_per_lane;
}

}  // namespace

const char* cluster_variant_mismatch(const ClusterVariant& variant, const PanelShape& shape) {
  if (variant.ctas != 2 && variant.ctas != 4 && variant.ctas != 8 && variant.ctas != 16)
    return "a cluster is of 2, 4, 8 or 16 CTAs";
#define JAXQR_CHECK(rows_per_lane, cols_per_lane, max_warps)                                               \
  if (same(variant, rows_per_lane, cols_per_lane)) {                                                       \
    if (shape.m - shape.offset - shape.width > 32 * (rows_per_lane) * variant.ctas)                        \
      return "the variant does not hold that many rows";                                                   \
    if (shape.width > (cols_per_lane) * (max_warps)) return "the variant does not hold that many columns"; \
    return nullptr;                                                                                        \
  }
  JAXQR_CLUSTER_VARIANTS(JAXQR_CHECK)
#undef JAXQR_CHECK
  return "no such variant was compiled";
}

int64_t cluster_shared_bytes(const ClusterVariant& variant, int64_t width) {
#define JAXQR_BYTES(rows_per_lane, cols_per_lane, max_warps) \
  if (same(variant, rows_per_lane, cols_per_lane))           \
    return cluster_shared_bytes<cols_per_lane, max_warps>(rows_per_lane, static_cast<int>(width));
  JAXQR_CLUSTER_VARIANTS(JAXQR_BYTES)
#undef JAXQR_BYTES
  return 0;
}

cudaError_t launch_cluster_panel(const ClusterVariant& variant, const PanelShape& shape, const float* src, float* h,
                                 float* tau, cudaStream_t stream) {
  int device, clusters;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  if (error != cudaSuccess) return error;
  if (!clusters) return cudaErrorNotSupported;
#define JAXQR_LAUNCH(rows_per_lane, cols_per_lane, max_warps) \
  if (same(variant, rows_per_lane, cols_per_lane))            \
    return launch<rows_per_lane, cols_per_lane, max_warps>(variant.ctas, shape, src, h, tau, stream);
  JAXQR_CLUSTER_VARIANTS(JAXQR_LAUNCH)
#undef JAXQR_LAUNCH
  return cudaErrorInvalidValue;
}

}  // namespace jaxqr
