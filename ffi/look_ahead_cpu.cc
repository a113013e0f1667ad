// Reference handler of jaxqr_look_ahead on the CPU: the update, and then the next panel.
#include <string_view>

#include "bindings.h"
#include "block_reflector_cpu.h"
#include "handlers.h"
#include "ieee_scope.h"
#include "panel_cpu.h"
#include "shapes.h"

namespace jaxqr {
namespace {

xla::ffi::Error look_ahead(Matrices h_in, Halves halves, Matrices t, xla::ffi::RemainingArgs rest,
                           xla::ffi::Result<Matrices> h_out, xla::ffi::Result<Vectors> scales,
                           xla::ffi::Result<Vectors> tau, xla::ffi::Result<Matrices> next_t,
                           xla::ffi::Result<Halves> next_halves, int64_t offset, int64_t width, int64_t early,
                           std::string_view /*regime*/, xla::ffi::Span<const int64_t> /*variant*/, bool has_scales,
                           bool has_src) {
  BlockReflectorOperands operands;
  LookAheadShape shape;
  if (auto error = optional_operands("jaxqr_look_ahead", rest, has_scales, has_src, &operands); error.failure())
    return error;
  if (auto error = check_look_ahead(h_in, halves, t, operands, *h_out, *scales, *tau, *next_t, *next_halves, offset,
                                    width, early, &shape);
      error.failure())
    return error;
  const IeeeScope ieee;
  apply_block_reflectors(h_in, halves, t, true, operands, *h_out, *scales, offset, width, shape.first, shape.last);
  factor_panels(h_in.dimensions(), h_out->typed_data(), h_out->typed_data(), *tau, *next_t, *next_halves, shape.first,
                shape.next_width);
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_look_ahead_cpu, jaxqr::look_ahead, jaxqr::bind_look_ahead(xla::ffi::Ffi::Bind()));
