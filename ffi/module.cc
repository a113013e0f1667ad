// The Python module jaxqr._native: FFI handlers as capsules, and what this build contains. No CUDA call is made here.
#include <nanobind/nanobind.h>

#include "handlers.h"
#include "panel_variants.h"

namespace nb = nanobind;

namespace {

nb::capsule encapsulate(XLA_FFI_Handler* handler) { return nb::capsule(reinterpret_cast<void*>(handler)); }

nb::dict registrations() {
  nb::dict cpu;
  cpu["jaxqr_panel"] = encapsulate(jaxqr_panel_cpu);
  cpu["jaxqr_block_reflector"] = encapsulate(jaxqr_block_reflector_cpu);
  nb::dict platforms;
  platforms["cpu"] = cpu;
#ifdef JAXQR_CUDA_ARCHITECTURES
  nb::dict cuda;
  cuda["jaxqr_panel"] = encapsulate(jaxqr_panel_cuda);
  cuda["jaxqr_block_reflector"] = encapsulate(jaxqr_block_reflector_cuda);
  platforms["CUDA"] = cuda;
#endif
  return platforms;
}

nb::list panel_variants() {
  nb::list variants;
#define APPEND(row_lanes, rows_per_lane, cols_per_lane, max_warps) \
  variants.append(nb::make_tuple(row_lanes, rows_per_lane, cols_per_lane, max_warps));
  JAXQR_PANEL_VARIANTS(APPEND)
#undef APPEND
  return variants;
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
  module.def("panel_variants", &panel_variants,
             "Variants of the CUDA panel kernel: (row_lanes, rows_per_lane, cols_per_lane, max_warps).");
  module.def("cuda_architectures", &cuda_architectures, "CUDA architectures compiled in; empty without CUDA.");
}
