// The panel kernels that were compiled, and the panels that they take.
#ifndef JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_
#define JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_

#include <cstdint>
#include <vector>

#include "../cluster_variants.h"
#include "../narrow_variants.h"
#include "../panel.h"
#include "../panel_variants.h"
#include "../regimes.h"
#include "../tiny_variants.h"
#include "../wide_variants.h"

namespace driver {

// The most rows and columns of a panel, and the fewest columns. (Fewer are for another kernel of the same name.)
struct Kernel {
  jaxqr::PanelKernelName name;
  int64_t rows, columns, fewest = 1;
};

inline std::vector<Kernel> compiled_kernels() {
  std::vector<Kernel> kernels;
#define JAXQR_NARROW(lanes, warps, rows_per_lane)                         \
  for (int64_t columns = 1; columns <= jaxqr::kMaxNarrowWidth; ++columns) \
    kernels.push_back(                                                    \
        {{"narrow", {lanes, warps, rows_per_lane}}, (lanes) * (warps) * (rows_per_lane), columns, columns});
#define JAXQR_TINY(column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane)               \
  kernels.push_back({{"tiny", {column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane}}, \
                     (row_lanes) * (warps) * (rows_per_lane),                                  \
                     (column_lanes) * (cols_per_lane)});
#define JAXQR_WIDE(rows, cols_per_lane) kernels.push_back({{"wide", {rows, cols_per_lane}}, rows, rows});
  const auto add_cta = [&](int64_t cols_per_warp, int64_t rows_per_lane, int64_t max_warps) {
    const jaxqr::PanelKernelName name{"cta", {cols_per_warp, rows_per_lane}};
    const int64_t rows = 32 * rows_per_lane, one_turn = cols_per_warp * max_warps;
    kernels.push_back({name, rows, one_turn});
    if (one_turn < jaxqr::kMaxTurnsWidth) kernels.push_back({name, rows, jaxqr::kMaxTurnsWidth, one_turn + 1});
  };
#define JAXQR_CTA(cols_per_warp, rows_per_lane, max_warps) add_cta(cols_per_warp, rows_per_lane, max_warps);
#define JAXQR_CLUSTER(rows_per_lane, cols_per_lane, max_warps)                                                \
  for (int64_t ctas : {2, 4, 8, 16}) {                                                                        \
    const int64_t columns = (cols_per_lane) * (max_warps);                                                    \
    kernels.push_back(                                                                                        \
        {{"cluster", {rows_per_lane, cols_per_lane, ctas}}, columns + 32 * (rows_per_lane) * ctas, columns}); \
  }
  JAXQR_NARROW_VARIANTS(JAXQR_NARROW)
  JAXQR_TINY_VARIANTS(JAXQR_TINY)
  JAXQR_WIDE_VARIANTS(JAXQR_WIDE)
  JAXQR_PANEL_VARIANTS(JAXQR_CTA)
  JAXQR_CLUSTER_VARIANTS(JAXQR_CLUSTER)
#undef JAXQR_NARROW
#undef JAXQR_TINY
#undef JAXQR_WIDE
#undef JAXQR_CTA
#undef JAXQR_CLUSTER
  return kernels;
}

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_COMPILED_KERNELS_H_
