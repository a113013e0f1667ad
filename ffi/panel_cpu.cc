// Reference handler of jaxqr_panel on the CPU: LAPACK's geqr2 and larft of a panel, written for clarity.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "handlers.h"
#include "householder_cpu.h"
#include "ieee_scope.h"
#include "reflectors_cpu.h"
#include "shapes.h"

namespace jaxqr {
namespace {

// Factors one matrix's panel: rows offset … m, columns offset … offset+width of the row-major m×n `src`, into `h`.
void factor_panel(const float* src, float* h, float* tau_out, float* t_out, uint16_t* halves, int64_t m, int64_t n,
                  int64_t offset, int64_t width) {
  const int64_t rows = m - offset;
  const int64_t corner = offset * n + offset;
  std::vector<double> tau;
  const std::vector<double> panel = factor_columns(src + corner, h + corner, rows, n, width, &tau);
  std::copy(tau.begin(), tau.end(), tau_out);
  if (t_out == nullptr) return;
  const std::vector<double> t = form_t(panel, tau, rows, width);
  std::copy(t.begin(), t.end(), t_out);
  write_halves(panel, std::vector<double>(width, 1.0), rows, width, halves);
}

xla::ffi::Error panel(Matrices src, xla::ffi::Result<Matrices> h, xla::ffi::Result<Vectors> tau,
                      xla::ffi::Result<Matrices> t, xla::ffi::Result<Halves> halves, int64_t offset, int64_t width,
                      std::string_view /*regime*/, xla::ffi::Span<const int64_t> /*variant*/, bool in_place) {
  if (auto error = check_panel(src, *h, *tau, *t, *halves, offset, width); error.failure()) return error;
  if (in_place && src.typed_data() != h->typed_data())
    std::copy_n(src.typed_data(), src.element_count(), h->typed_data());
  const IeeeScope ieee;
  const int64_t batch = src.dimensions()[0], m = src.dimensions()[1], n = src.dimensions()[2];
  const bool want_t = t->dimensions()[1] > 0;
  for (int64_t b = 0; b < batch; ++b) {
    factor_panel(src.typed_data() + b * m * n, h->typed_data() + b * m * n, tau->typed_data() + b * width,
                 want_t ? t->typed_data() + b * width * width : nullptr,
                 static_cast<uint16_t*>(halves->untyped_data()) + b * (m - offset) * 2 * reflector_pitch(width), m, n,
                 offset, width);
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_panel_cpu, jaxqr::panel,
                              xla::ffi::Ffi::Bind()
                                  .Arg<jaxqr::Matrices>()
                                  .Ret<jaxqr::Matrices>()
                                  .Ret<jaxqr::Vectors>()
                                  .Ret<jaxqr::Matrices>()
                                  .Ret<jaxqr::Halves>()
                                  .Attr<int64_t>("offset")
                                  .Attr<int64_t>("width")
                                  .Attr<std::string_view>("regime")
                                  .Attr<xla::ffi::Span<const int64_t>>("variant")
                                  .Attr<bool>("in_place"));
