// The panel kernels of all regimes behind one interface, by the name of the regime and the numbers of the variant.
#ifndef JAXQR_FFI_REGIMES_H_
#define JAXQR_FFI_REGIMES_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "panel.h"

namespace jaxqr {

// "narrow", "tiny", "wide", "cta" or "cluster", and the numbers of a NarrowVariant, TinyVariant, WideVariant,
// PanelVariant or ClusterVariant.
struct PanelKernelName {
  std::string_view regime;
  std::vector<int64_t> variant;
};

std::string text_of(const PanelKernelName& name);

// The names in such texts with commas between them. What is no such text gets a name that no kernel has.
std::vector<PanelKernelName> kernel_names(std::string_view texts);

// One panel's kernel.
struct PanelKernel {
  const char* mismatch;  // why it cannot factor the panel, or nullptr if it can; then the rest holds
  int64_t shared_bytes;  // dynamic shared memory that a CTA takes at the least
  // As launch_panel in panel.h; `t` and `halves` are null unless T is wanted.
  std::function<cudaError_t(const float* src, float* h, float* tau, float* t, __half* halves, cudaStream_t stream)>
      launch;
};

PanelKernel panel_kernel(const PanelKernelName& name, const PanelShape& shape, bool has_t);

}  // namespace jaxqr

#endif  // JAXQR_FFI_REGIMES_H_
