// Host interface of the CTA-regime panel kernel: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_PANEL_H_
#define JAXQR_FFI_PANEL_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "leaves.h"

namespace jaxqr {

// Columns offset … offset+width of `batch` row-major m×n matrices; the panel's first pivot is at (offset, offset).
struct PanelShape {
  int64_t batch, m, n, offset, width;
};

// Columns of the widest panel whose columns the warps of a CTA take in turns.
inline constexpr int kMaxTurnsWidth = 64;

// A row of panel_variants.h, without its bound on warps.
struct PanelVariant {
  int64_t cols_per_warp, rows_per_lane;
};

// Why the variant cannot factor this panel, or nullptr if it can.
const char* panel_variant_mismatch(const PanelVariant& variant, const PanelShape& shape);

// Dynamic shared memory that a launch takes at the least; the device has to offer as much to one CTA.
int64_t panel_shared_bytes(const PanelVariant& variant, int64_t width, bool has_t);

// Whether T of a panel is the kernel's own: that of few columns, and of more than its warps hold, is another's
// (reflectors.h).
bool panel_makes_t(const PanelVariant& variant, int64_t width);

// Factors the panel of every matrix: reads `src`, writes `h` (which may be `src`) and tau[batch, width]; also, unless
// both are null, T of at most kMaxReflectorsWidth columns in t[batch, width, width] and the reflectors as `halves`
// (reflector_halves.h), if the kernel makes them. Only the panel's own elements of `h` are written. Asynchronous on
// `stream`; allocates nothing. The caller has checked the variant with panel_variant_mismatch.
cudaError_t launch_panel(const PanelVariant& variant, const PanelShape& shape, const float* src, float* h, float* tau,
                         float* t, __half* halves, cudaStream_t stream);

// The same for the leaves of tall panels, tau[batch, leaves, width].
const char* panel_variant_mismatch(const PanelVariant& variant, const LeavesShape& shape);

cudaError_t launch_panel_leaves(const PanelVariant& variant, const LeavesShape& shape, const float* src, float* h,
                                float* tau, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_H_
