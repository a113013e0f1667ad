#include "regimes.h"

#include "cluster_panel.h"
#include "tiny.h"

namespace jaxqr {

std::string text_of(const PanelKernelName& name) {
  std::string text(name.regime);
  for (size_t i = 0; i < name.variant.size(); ++i) text += (i ? "x" : " ") + std::to_string(name.variant[i]);
  return text;
}

PanelKernel panel_kernel(const PanelKernelName& name, const PanelShape& shape, bool has_t) {
  using namespace std::placeholders;
  const std::vector<int64_t>& v = name.variant;
  if (name.regime == "cta" && v.size() == 3) {
    const PanelVariant variant{v[0], v[1], v[2]};
    return {panel_variant_mismatch(variant, shape, has_t), panel_shared_bytes(variant, shape.width, has_t),
            std::bind(launch_panel, variant, shape, _1, _2, _3, _4, _5, _6)};
  }
  if (name.regime == "cluster" && v.size() == 3) {
    const ClusterVariant variant{v[0], v[1], v[2]};
    return {cluster_variant_mismatch(variant, shape, has_t), cluster_shared_bytes(variant, shape.width, has_t),
            std::bind(launch_cluster_panel, variant, shape, _1, _2, _3, _4, _5, _6)};
  }
  if (name.regime == "tiny" && v.size() == 5) {
    if (has_t || shape.offset > 0 || shape.width < shape.n)
      return {"tiny kernels factor whole matrices, and make no T", 0, nullptr};
    const TinyVariant variant{v[0], v[1], v[2], v[3], v[4]};
    const TinyShape whole{shape.batch, shape.m, shape.n};
    return {tiny_variant_mismatch(variant, whole), 0, std::bind(launch_tiny, variant, whole, _1, _2, _3, _6)};
  }
  return {"there is no such regime with that many numbers", 0, nullptr};
}

}  // namespace jaxqr
