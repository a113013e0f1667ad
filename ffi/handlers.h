// The XLA FFI handlers of this library. The CUDA ones exist only in a build with CUDA.
#ifndef JAXQR_FFI_HANDLERS_H_
#define JAXQR_FFI_HANDLERS_H_

#include "xla/ffi/api/ffi.h"

XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_panel_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_leaves_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_lift_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_tall_update_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_reflectors_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_block_reflector_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_look_ahead_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_steps_cpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_panel_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_leaves_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_lift_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_tall_update_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_reflectors_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_block_reflector_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_look_ahead_cuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(jaxqr_steps_cuda);

#endif  // JAXQR_FFI_HANDLERS_H_
