// The panel kernels that were compiled, and the largest panels that they take.
#ifndef JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_
#define JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_

#include <cstdint>
#include <vector>

#include "../cluster_variants.h"
#include "../panel.h"
#include "../panel_variants.h"
#include "../regimes.h"
#include "../tiny_variants.h"

namespace driver {

struct Kernel {
  jaxqr::PanelKernelName name;
  int64_t rows, columns;
};

inline std::vector<Kernel> compiled_kernels() {
  std::vector<Kernel> kernels;
#define JAXQR_TINY(column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane)               \
  kernels.push_back({{"tiny", {column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane}}, \
                     (row_lanes) * (warps) * (rows_per_lane),                                  \
                     (column_lanes) * (cols_per_lane)});
  // Panels whose columns the warps hold, and those that they take in turns.
#define JAXQR_CTA(cols_per_warp, rows_per_lane, max_warps)                                       \
  for (int64_t columns = (cols_per_warp) * (max_warps);; columns = jaxqr::kMaxTurnsWidth) {      \
    kernels.push_back({{"cta", {cols_per_warp, rows_per_lane}}, 32 * (rows_per_lane), columns}); \
    if (columns >= jaxqr::kMaxTurnsWidth) break;                                                 \
  }
#define JAXQR_CLUSTER(rows_per_lane, cols_per_lane, max_warps)                                                \
  for (int64_t ctas : {2, 4, 8, 16}) {                                                                        \
    const int64_t columns = (cols_per_lane) * (max_warps);                                                    \
    kernels.push_back(                                                                                        \
        {{"cluster", {rows_per_lane, cols_per_lane, ctas}}, columns + 32 * (rows_per_lane) * ctas, columns}); \
  }
  JAXQR_TINY_VARIANTS(JAXQR_TINY)
  JAXQR_PANEL_VARIANTS(JAXQR_CTA)
  JAXQR_CLUSTER_VARIANTS(JAXQR_CLUSTER)
#undef JAXQR_TINY
#undef JAXQR_CTA
#undef JAXQR_CLUSTER
  return kernels;
}

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_
