// Reference handler of jaxqr_steps on the CPU: panels and updates in turn, one matrix after the other.
#include <algorithm>
#include <string_view>

#include "bindings.h"
#include "block_reflector_cpu.h"
#include "handlers.h"
#include "ieee_scope.h"
#include "panel_cpu.h"
#include "shapes.h"

namespace jaxqr {
namespace {

xla::ffi::Error steps(Matrices src, xla::ffi::Result<Matrices> h, xla::ffi::Result<Vectors> scales,
                      xla::ffi::Result<Matrices> couplings, xla::ffi::RemainingRets results, Dimensions widths,
                      std::string_view /*kernels*/, Dimensions pairs, Dimensions look_ahead, Dimensions early,
                      bool in_halves, bool in_place, bool keep) {
  std::vector<StepResults> checked;
  const StepAttributes told{widths, pairs, look_ahead, early, in_halves, keep};
  if (auto error = check_steps(src, *h, *scales, *couplings, results, told, &checked); error.failure()) return error;
  if (in_place && src.typed_data() != h->typed_data())
    std::copy_n(src.typed_data(), src.element_count(), h->typed_data());
  const IeeeScope ieee;
  const int64_t batch = src.dimensions()[0], m = src.dimensions()[1], n = src.dimensions()[2];
  std::fill_n(scales->typed_data(), scales->element_count(), 1.0f);
  for (int64_t b = 0; b < batch; ++b) {
    float* const place = h->typed_data() + b * m * n;
    const float* source = in_place ? place : src.typed_data() + b * m * n;
    for (const StepResults& step : checked) {
      const int64_t next = step.offset + step.width;
      float* const t = next < n ? step.t + b * step.t_stride : nullptr;
      uint16_t* const halves = static_cast<uint16_t*>(step.halves) + b * step.halves_stride;
      factor_panel(source, place, step.tau + b * step.width, t, halves, m, n, step.offset, step.width);
      if (next < n) apply_block_reflector(place, halves, t, true, source, m, n, step.offset, step.width, next, n);
      source = place;
    }
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_steps_cpu, jaxqr::steps, jaxqr::bind_steps(xla::ffi::Ffi::Bind()));
