// Reference handler of jaxqr_panel on the CPU.

#include "panel_cpu.h"

#include <algorithm>
#include <string_view>

#include "bindings.h"
#include "handlers.h"
#include "ieee_scope.h"
#include "shapes.h"
#include "whole_regimes.h"

namespace jaxqr {
namespace {

xla::ffi::Error panel(Matrices src, xla::ffi::Result<Matrices> h, xla::ffi::Result<Vectors> tau,
                      xla::ffi::Result<Matrices> t, xla::ffi::Result<Halves> halves, int64_t offset, int64_t width,
                      std::string_view regime, xla::ffi::Span<const int64_t> /*variant*/, bool in_place) {
  if (auto error = check_panel("jaxqr_panel", src.dimensions(), *tau, *t, *halves, offset, width); error.failure())
    return error;
  if (auto error = check_shape("jaxqr_panel: h", h->dimensions(), shape_of(src.dimensions())); error.failure())
    return error;
  if (in_place && src.typed_data() != h->typed_data())
    std::copy_n(src.typed_data(), src.element_count(), h->typed_data());
  const IeeeScope ieee;
  factor_panels(src.dimensions(), src.typed_data(), h->typed_data(), *tau, *t, *halves, offset, width,
                factors_all_columns(regime));
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_panel_cpu, jaxqr::panel, jaxqr::bind_panel(xla::ffi::Ffi::Bind()));
