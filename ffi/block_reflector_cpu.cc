// Reference handler of jaxqr_block_reflector on the CPU.

#include "block_reflector_cpu.h"

#include "bindings.h"
#include "handlers.h"
#include "ieee_scope.h"
#include "shapes.h"

namespace jaxqr {
namespace {

xla::ffi::Error block_reflector(Matrices h_in, Halves halves, Matrices t, xla::ffi::RemainingArgs rest,
                                xla::ffi::Result<Matrices> h_out, xla::ffi::Result<Vectors> scales, int64_t offset,
                                int64_t width, int64_t first, int64_t last, int64_t known, bool transpose,
                                bool has_scales, bool has_src, bool remake_scales) {
  BlockReflectorOperands operands;
  if (auto error = optional_operands("jaxqr_block_reflector", rest, has_scales, has_src, &operands); error.failure())
    return error;
  if (auto error = check_block_reflector("jaxqr_block_reflector", h_in, halves, t, operands, *h_out, *scales, offset,
                                         width, first, last, known);
      error.failure())
    return error;
  const IeeeScope ieee;
  apply_block_reflectors(h_in, halves, t, transpose, operands, *h_out, *scales, offset, width, first, last, known);
  if (remake_scales) remake_column_scales(*h_out, *scales, offset, first, last);
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_block_reflector_cpu, jaxqr::block_reflector,
                              jaxqr::bind_block_reflector(xla::ffi::Ffi::Bind()));
