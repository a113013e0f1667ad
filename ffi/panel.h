// Host interface of the panel kernels: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_PANEL_H_
#define JAXQR_FFI_PANEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxqr {

// Columns offset … offset+width of `batch` row-major m×n matrices; the panel's first pivot is at (offset, offset).
struct PanelShape {
  int64_t batch, m, n, offset, width;
};

// A row of panel_variants.h, without its bound on warps.
struct PanelVariant {
  int64_t row_lanes, rows_per_lane, cols_per_lane;
};

// Why the variant cannot factor this panel, or nullptr if it can.
const char* panel_variant_mismatch(const PanelVariant& variant, const PanelShape& shape);

// Dynamic shared memory of a launch; the device has to offer as much to one CTA.
int64_t panel_shared_bytes(const PanelVariant& variant, int64_t width);

// Factors the panel of every matrix: reads `src`, writes `h` (which may be `src`) and tau[batch, width]. Only the
// panel's own elements of `h` are written. Asynchronous on `stream`; allocates nothing. The caller has checked the
// variant with panel_variant_mismatch.
cudaError_t launch_panel(const PanelVariant& variant, const PanelShape& shape, const float* src, float* h, float* tau,
                         cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_H_
