#include "regimes.h"

#include <algorithm>
#include <charconv>

#include "cluster_panel.h"
#include "narrow.h"
#include "reflectors.h"
#include "tiny.h"
#include "whole_regimes.h"
#include "wide.h"

namespace jaxqr {

std::string text_of(const PanelKernelName& name) {
  std::string text(name.regime);
  for (size_t i = 0; i < name.variant.size(); ++i) text += (i ? "x" : " ") + std::to_string(name.variant[i]);
  return text;
}

std::vector<PanelKernelName> kernel_names(std::string_view texts) {
  std::vector<PanelKernelName> names;
  while (!texts.empty()) {
    const std::string_view text = texts.substr(0, texts.find(','));
    texts.remove_prefix(std::min(text.size() + 1, texts.size()));
    const size_t space = std::min(text.find(' '), text.size());
    PanelKernelName name{text.substr(0, space), {}};
    for (const char *next = text.data() + space, *const end = text.data() + text.size(); next < end;) {
      int64_t number = 0;
      next = std::from_chars(next + 1, end, number).ptr;
      name.variant.push_back(number);
    }
    names.push_back(name);
  }
  return names;
}

namespace {

using Factorization = std::function<cudaError_t(const float* src, float* h, float* tau, cudaStream_t stream)>;

// A kernel that makes no T: where it is wanted, another kernel follows.
PanelKernel followed_by_reflectors(const char* mismatch, int64_t shared_bytes, Factorization factorization,
                                   const PanelShape& shape, bool has_t) {
  return {mismatch, shared_bytes,
          [=](const float* src, float* h, float* tau, float* t, __half* halves, cudaStream_t stream) {
            const cudaError_t error = factorization(src, h, tau, stream);
            if (!has_t || error != cudaSuccess) return error;
            return launch_reflectors({shape.batch, shape.m, shape.n, shape.offset, shape.width},
                                     {{t, halves, shape.offset, shape.width}}, h, tau, stream);
          }};
}

}  // namespace

PanelKernel panel_kernel(const PanelKernelName& name, const PanelShape& shape, bool has_t) {
  using namespace std::placeholders;
  const std::vector<int64_t>& v = name.variant;
  if (has_t && shape.width > kMaxReflectorsWidth) return {"T is made for at most 64 columns", 0, nullptr};
  if (factors_all_columns(name.regime)) {
    if (has_t || shape.offset > 0 || shape.width < std::min(shape.m, shape.n))
      return {"narrow, tiny and wide kernels factor whole matrices, and make no T", 0, nullptr};
    const TinyShape whole{shape.batch, shape.m, shape.n};
    if (name.regime == "narrow" && v.size() == 3) {
      const NarrowVariant variant{v[0], v[1], v[2]};
      return {narrow_variant_mismatch(variant, whole), 0, std::bind(launch_narrow, variant, whole, _1, _2, _3, _6)};
    }
    if (name.regime == "tiny" && v.size() == 5) {
      const TinyVariant variant{v[0], v[1], v[2], v[3], v[4]};
      return {tiny_variant_mismatch(variant, whole), 0, std::bind(launch_tiny, variant, whole, _1, _2, _3, _6)};
    }
    if (name.regime == "wide" && v.size() == 2) {
      const WideVariant variant{v[0], v[1]};
      return {wide_variant_mismatch(variant, whole), 0, std::bind(launch_wide, variant, whole, _1, _2, _3, _6)};
    }
  }
  if (name.regime == "cta" && v.size() == 2) {
    const PanelVariant variant{v[0], v[1]};
    const char* const mismatch = panel_variant_mismatch(variant, shape);
    if (!panel_makes_t(variant, shape.width)) {
      return followed_by_reflectors(mismatch, panel_shared_bytes(variant, shape.width, false),
                                    std::bind(launch_panel, variant, shape, _1, _2, _3, nullptr, nullptr, _4), shape,
                                    has_t);
    }
    return {mismatch, panel_shared_bytes(variant, shape.width, has_t),
            std::bind(launch_panel, variant, shape, _1, _2, _3, _4, _5, _6)};
  }
  if (name.regime == "cluster" && v.size() == 3) {
    const ClusterVariant variant{v[0], v[1], v[2]};
    return followed_by_reflectors(cluster_variant_mismatch(variant, shape), cluster_shared_bytes(variant, shape.width),
                                  std::bind(launch_cluster_panel, variant, shape, _1, _2, _3, _4), shape, has_t);
  }
  return {"there is no such regime with that many numbers", 0, nullptr};
}

}  // namespace jaxqr
