// Host interface of the rows-regime panel kernel: plain C++ and CUDA runtime types, no XLA.
#ifndef JAXQR_FFI_ROWS_PANEL_H_
#define JAXQR_FFI_ROWS_PANEL_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "leaves.h"
#include "panel.h"

namespace jaxqr {

// A row of rows_variants.h.
struct RowsVariant {
  int64_t cols_per_lane, rows_per_lane, warps;
};

// As the functions of panel.h.
const char* rows_variant_mismatch(const RowsVariant& variant, const PanelShape& shape);

int64_t rows_shared_bytes(const RowsVariant& variant);

// Also, unless both are null, of more than kNarrowReflectors columns T in t[batch, width, width] and the reflectors as
// `halves` (reflector_halves.h).
cudaError_t launch_rows_panel(const RowsVariant& variant, const PanelShape& shape, const float* src, float* h,
                              float* tau, float* t, __half* halves, cudaStream_t stream);

// The same for the leaves of tall panels, tau[batch, leaves, width].
const char* rows_variant_mismatch(const RowsVariant& variant, const LeavesShape& shape);

cudaError_t launch_rows_leaves(const RowsVariant& variant, const LeavesShape& shape, const float* src, float* h,
                               float* tau, cudaStream_t stream);

}  // namespace jaxqr

#endif  // JAXQR_FFI_ROWS_PANEL_H_
