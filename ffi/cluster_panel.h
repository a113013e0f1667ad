// Host interface of the cluster-regime panel kernels: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_CLUSTER_PANEL_H_
#define JAXQR_FFI_CLUSTER_PANEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "panel.h"

namespace jaxqr {

// A row of cluster_variants.h, without its bound on warps, and the number of CTAs that share a panel: 2, 4, 8 or, where
// the device can place so many (cudaOccupancyMaxActiveClusters), 16.
struct ClusterVariant {
  int64_t rows_per_lane, cols_per_lane, ctas;
};

// Why the variant cannot factor this panel, or nullptr if it can.
const char* cluster_variant_mismatch(const ClusterVariant& variant, const PanelShape& shape);

// Dynamic shared memory of a CTA of a launch; the device has to offer as much to one CTA.
int64_t cluster_shared_bytes(const ClusterVariant& variant, int64_t width);

// As launch_panel without T, which another kernel makes in less time. Returns cudaErrorNotSupported on a device without
// clusters (before compute capability 9.0).
cudaError_t launch_cluster_panel(const ClusterVariant& variant, const PanelShape& shape, const float* src, float* h,
                                 float* tau, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_CLUSTER_PANEL_H_
