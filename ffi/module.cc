// The Python module jaxqr._native: FFI handlers as capsules, and what this build contains. No CUDA call is made here.
#include <nanobind/nanobind.h>

#include "cluster_variants.h"
#include "handlers.h"
#include "narrow_variants.h"
#include "panel_variants.h"
#include "tiny_variants.h"
#include "wide_variants.h"

namespace nb = nanobind;

namespace {

nb::capsule encapsulate(XLA_FFI_Handler* handler) { return nb::capsule(reinterpret_cast<void*>(handler)); }

nb::dict registrations() {
  nb::dict cpu;
  cpu["jaxqr_panel"] = encapsulate(jaxqr_panel_cpu);
  cpu["jaxqr_leaves"] = encapsulate(jaxqr_leaves_cpu);
  cpu["jaxqr_lift"] = encapsulate(jaxqr_lift_cpu);
  cpu["jaxqr_tall_update"] = encapsulate(jaxqr_tall_update_cpu);
  cpu["jaxqr_reflectors"] = encapsulate(jaxqr_reflectors_cpu);
  cpu["jaxqr_block_reflector"] = encapsulate(jaxqr_block_reflector_cpu);
  cpu["jaxqr_look_ahead"] = encapsulate(jaxqr_look_ahead_cpu);
  cpu["jaxqr_steps"] = encapsulate(jaxqr_steps_cpu);
  nb::dict platforms;
  platforms["cpu"] = cpu;
#ifdef JAXQR_CUDA_ARCHITECTURES
  nb::dict cuda;
  cuda["jaxqr_panel"] = encapsulate(jaxqr_panel_cuda);
  cuda["jaxqr_leaves"] = encapsulate(jaxqr_leaves_cuda);
  cuda["jaxqr_lift"] = encapsulate(jaxqr_lift_cuda);
  cuda["jaxqr_tall_update"] = encapsulate(jaxqr_tall_update_cuda);
  cuda["jaxqr_reflectors"] = encapsulate(jaxqr_reflectors_cuda);
  cuda["jaxqr_block_reflector"] = encapsulate(jaxqr_block_reflector_cuda);
  cuda["jaxqr_look_ahead"] = encapsulate(jaxqr_look_ahead_cuda);
  cuda["jaxqr_steps"] = encapsulate(jaxqr_steps_cuda);
  platforms["CUDA"] = cuda;
#endif
  return platforms;
}

// The compiled kernels of each regime, as rows of their lists of variants.
nb::dict kernels() {
#define JAXQR_ROW(...) rows.append(nb::make_tuple(__VA_ARGS__));
  nb::dict regimes;
  {
    nb::list rows;
    JAXQR_NARROW_VARIANTS(JAXQR_ROW)
    regimes["narrow"] = rows;
  }
  {
    nb::list rows;
    JAXQR_TINY_VARIANTS(JAXQR_ROW)
    regimes["tiny"] = rows;
  }
  {
    nb::list rows;
    JAXQR_WIDE_VARIANTS(JAXQR_ROW)
    regimes["wide"] = rows;
  }
  {
    nb::list rows;
    JAXQR_PANEL_VARIANTS(JAXQR_ROW)
    regimes["cta"] = rows;
  }
  {
    nb::list rows;
    JAXQR_CLUSTER_VARIANTS(JAXQR_ROW)
    regimes["cluster"] = rows;
  }
#undef JAXQR_ROW
  return regimes;
}

nb::list cuda_architectures() {
  nb::list architectures;
#ifdef JAXQR_CUDA_ARCHITECTURES
  for (nb::handle architecture : nb::str(JAXQR_CUDA_ARCHITECTURES).attr("split")(","))
    architectures.append(architecture);
#endif
  return architectures;
}

}  // namespace

NB_MODULE(_native, module) {
  module.def("registrations", &registrations, "FFI handlers: {platform: {target: capsule}}.");
  module.def("kernels", &kernels,
             "Variants of the CUDA panel kernels by regime. narrow: (lanes, warps, rows_per_lane); tiny: "
             "(column_lanes, cols_per_lane, row_lanes, warps, "
             "rows_per_lane); wide: (rows, cols_per_lane); cta: (cols_per_warp, rows_per_lane, max_warps); cluster: "
             "(rows_per_lane, cols_per_lane, max_warps).");
  module.def("cuda_architectures", &cuda_architectures, "CUDA architectures compiled in; empty without CUDA.");
}
