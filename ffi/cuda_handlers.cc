// XLA FFI handlers on CUDA: bind, check, launch. The kernels know nothing of XLA.
//
// The handlers only launch kernels on the given stream: they allocate nothing and synchronize nothing, so XLA may
// capture them in a command buffer.
#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.h"
#include "block_reflector.h"
#include "handlers.h"
#include "look_ahead.h"
#include "reflectors.h"
#include "regimes.h"
#include "shapes.h"
#include "steps.h"
#include "tall.h"
#include "tall_update.h"

namespace ffi = xla::ffi;

namespace jaxqr {
namespace {

ffi::Error status(const char* target, cudaError_t error, ffi::Span<const int64_t> matrices) {
  if (error == cudaSuccess) return ffi::Error::Success();
  return ffi::Error::Internal(std::string(target) + " on " + shape_text(shape_of(matrices)) + ": " +
                              cudaGetErrorString(error));
}

// XLA does not always honour an alias: inside a loop it may hand over a slice of a stacked result instead. Then the
// operand is copied there first.
template <typename Buffer>
cudaError_t copy_unless_aliased(cudaStream_t stream, const Buffer& from, Buffer to) {
  if (from.typed_data() == to.typed_data()) return cudaSuccess;
  return cudaMemcpyAsync(to.typed_data(), from.typed_data(), from.size_bytes(), cudaMemcpyDeviceToDevice, stream);
}

ffi::Error check_width(const std::string& target, int64_t width, int64_t widest) {
  if (width <= widest) return ffi::Error::Success();
  return ffi::Error::InvalidArgument(target + ": width = " + std::to_string(width) + " is over " +
                                     std::to_string(widest));
}

__half* data_of(Halves& halves) { return reinterpret_cast<__half*>(halves.untyped_data()); }

ffi::Error find_panel_kernel(const std::string& target, const PanelKernelName& name, const PanelShape& shape,
                             bool has_t, PanelKernel* kernel) {
  *kernel = panel_kernel(name, shape, has_t);
  if (kernel->mismatch == nullptr) return ffi::Error::Success();
  return ffi::Error::InvalidArgument(target + ": kernel " + text_of(name) + " for " +
                                     std::to_string(shape.m - shape.offset) + " rows and " +
                                     std::to_string(shape.width) + " columns: " + kernel->mismatch);
}

ffi::Error panel(cudaStream_t stream, Matrices src, ffi::Result<Matrices> h, ffi::Result<Vectors> tau,
                 ffi::Result<Matrices> t, ffi::Result<Halves> halves, int64_t offset, int64_t width,
                 std::string_view regime, ffi::Span<const int64_t> variant, bool in_place) {
  const ffi::Span<const int64_t> matrices = src.dimensions();
  if (auto error = check_panel("jaxqr_panel", matrices, *tau, *t, *halves, offset, width); error.failure())
    return error;
  if (auto error = check_shape("jaxqr_panel: h", h->dimensions(), shape_of(matrices)); error.failure()) return error;
  const PanelShape shape{matrices[0], matrices[1], matrices[2], offset, width};
  const bool has_t = t->dimensions()[1] > 0;
  PanelKernel kernel;
  if (auto error = find_panel_kernel("jaxqr_panel", {regime, {variant.begin(), variant.end()}}, shape, has_t, &kernel);
      error.failure())
    return error;
  if (in_place) {
    if (const cudaError_t error = copy_unless_aliased(stream, src, *h); error != cudaSuccess)
      return status("jaxqr_panel", error, matrices);
  }
  return status("jaxqr_panel",
                kernel.launch(src.typed_data(), h->typed_data(), tau->typed_data(), has_t ? t->typed_data() : nullptr,
                              has_t ? data_of(*halves) : nullptr, stream),
                matrices);
}

ffi::Error leaves(cudaStream_t stream, Matrices src, ffi::Result<Matrices> h, ffi::Result<Matrices> tau,
                  ffi::Result<Matrices> stack, int64_t offset, ffi::Span<const int64_t> variant, bool in_place) {
  LeavesShape shape;
  if (auto error = check_shape("jaxqr_leaves: h", h->dimensions(), shape_of(src.dimensions())); error.failure())
    return error;
  if (auto error = check_leaves("jaxqr_leaves", *h, *tau, *stack, offset, &shape); error.failure()) return error;
  const PanelKernelName name{"cta", {variant.begin(), variant.end()}};
  const char* mismatch = "there is no such kernel";
  PanelVariant panel_variant{};
  if (variant.size() == 2) {
    panel_variant = {variant[0], variant[1]};
    mismatch = panel_variant_mismatch(panel_variant, shape);
  }
  if (mismatch != nullptr) {
    return ffi::Error::InvalidArgument("jaxqr_leaves: kernel " + text_of(name) + " for leaves of " +
                                       std::to_string(shape.split().highest()) + " rows and " +
                                       std::to_string(shape.width) + " columns: " + mismatch);
  }
  if (in_place) {
    if (const cudaError_t error = copy_unless_aliased(stream, src, *h); error != cudaSuccess)
      return status("jaxqr_leaves", error, src.dimensions());
  }
  const float* const from = in_place ? h->typed_data() : src.typed_data();
  if (const cudaError_t error =
          launch_panel_leaves(panel_variant, shape, from, h->typed_data(), tau->typed_data(), stream);
      error != cudaSuccess)
    return status("jaxqr_leaves", error, src.dimensions());
  return status("jaxqr_leaves", launch_stack(shape, from, h->typed_data(), stack->typed_data(), stream),
                src.dimensions());
}

ffi::Error lift(cudaStream_t stream, Matrices h, Matrices tau, Matrices stack, ffi::Result<Matrices> result,
                int64_t offset) {
  LeavesShape shape;
  if (auto error = check_shape("jaxqr_lift: the result", result->dimensions(), shape_of(h.dimensions()));
      error.failure())
    return error;
  if (auto error = check_leaves("jaxqr_lift", h, tau, stack, offset, &shape); error.failure()) return error;
  if (auto error = check_width("jaxqr_lift", shape.width, kMaxTallWidth); error.failure()) return error;
  if (const cudaError_t error = copy_unless_aliased(stream, h, *result); error != cudaSuccess)
    return status("jaxqr_lift", error, h.dimensions());
  return status("jaxqr_lift", launch_lift(shape, result->typed_data(), tau.typed_data(), stack.typed_data(), stream),
                h.dimensions());
}

ffi::Error tall_update(cudaStream_t stream, Matrices h, Vectors tau, ffi::RemainingArgs rest,
                       ffi::Result<Matrices> result, ffi::Result<Vectors> workspace, int64_t offset, bool has_src) {
  const char* const target = "jaxqr_tall_update";
  TallUpdateShape shape;
  std::optional<Matrices> src;
  if (auto error = check_tall_update(h, tau, rest, *result, *workspace, offset, has_src, &shape, &src); error.failure())
    return error;
  if (auto error = check_width(target, shape.width, kMaxTallUpdateWidth); error.failure()) return error;
  if (const cudaError_t error = copy_unless_aliased(stream, h, *result); error != cudaSuccess)
    return status(target, error, h.dimensions());
  return status(target,
                launch_tall_update(shape, result->typed_data(), tau.typed_data(), workspace->typed_data(),
                                   src ? src->typed_data() : result->typed_data(), stream),
                h.dimensions());
}

ffi::Error reflectors(cudaStream_t stream, Matrices h, Vectors tau, ffi::RemainingRets results, int64_t offset,
                      int64_t first) {
  std::vector<ReflectorResults> checked;
  if (auto error = check_reflectors(h, tau, results, offset, first, &checked); error.failure()) return error;
  const ffi::Span<const int64_t> matrices = h.dimensions();
  std::vector<ReflectorBlock> blocks;
  for (const ReflectorResults& block : checked) {
    if (auto error = check_width("jaxqr_reflectors", block.width, kMaxReflectorsWidth); error.failure()) return error;
    blocks.push_back({block.t, static_cast<__half*>(block.halves), block.offset, block.width});
  }
  const ReflectorShape shape{matrices[0], matrices[1], matrices[2], first, tau.dimensions()[1]};
  return status("jaxqr_reflectors", launch_reflectors(shape, blocks, h.typed_data(), tau.typed_data(), stream),
                matrices);
}

// Copies what XLA has not aliased, and says where C is read; an empty `h` holds nothing.
cudaError_t place_operands(cudaStream_t stream, const Matrices& h, const BlockReflectorOperands& operands,
                           const Matrices& result, const Vectors& scales, const float** src) {
  *src = operands.src ? operands.src->typed_data() : result.typed_data();
  const cudaError_t error = h.element_count() == 0 ? cudaSuccess : copy_unless_aliased(stream, h, result);
  if (error != cudaSuccess || !operands.scales) return error;
  return copy_unless_aliased(stream, *operands.scales, scales);
}

ffi::Error block_reflector(cudaStream_t stream, Matrices h, Halves halves, Matrices t, ffi::RemainingArgs rest,
                           ffi::Result<Matrices> result, ffi::Result<Vectors> scales, int64_t offset, int64_t width,
                           int64_t first, int64_t last, int64_t known, bool transpose, bool has_scales, bool has_src,
                           bool remake_scales) {
  BlockReflectorOperands operands;
  const char* const target = "jaxqr_block_reflector";
  if (auto error = optional_operands(target, rest, has_scales, has_src, &operands); error.failure()) return error;
  if (auto error =
          check_block_reflector(target, h, halves, t, operands, *result, *scales, offset, width, first, last, known);
      error.failure())
    return error;
  if (auto error = check_width(target, width, kMaxBlockReflectorWidth); error.failure()) return error;
  const ffi::Span<const int64_t> matrices = result->dimensions();
  const float* src;
  if (const cudaError_t error = place_operands(stream, h, operands, *result, *scales, &src); error != cudaSuccess)
    return status(target, error, matrices);
  const BlockReflectorShape shape{matrices[0], matrices[1], matrices[2], offset, width, first, last, known};
  return status(target,
                launch_block_reflector(shape, result->typed_data(), data_of(halves), t.typed_data(), transpose,
                                       scales->typed_data(), !has_scales, remake_scales, src, stream),
                matrices);
}

ffi::Error look_ahead(cudaStream_t stream, Matrices h, Halves halves, Matrices t, ffi::RemainingArgs rest,
                      ffi::Result<Matrices> result, ffi::Result<Vectors> scales, ffi::Result<Vectors> tau,
                      ffi::Result<Matrices> next_t, ffi::Result<Halves> next_halves, int64_t offset, int64_t width,
                      int64_t early, std::string_view regime, ffi::Span<const int64_t> variant, bool has_scales,
                      bool has_src) {
  BlockReflectorOperands operands;
  LookAheadShape columns;
  const char* const target = "jaxqr_look_ahead";
  if (auto error = optional_operands(target, rest, has_scales, has_src, &operands); error.failure()) return error;
  if (auto error = check_look_ahead(h, halves, t, operands, *result, *scales, *tau, *next_t, *next_halves, offset,
                                    width, early, &columns);
      error.failure())
    return error;
  if (auto error = check_width(target, width, kMaxBlockReflectorWidth); error.failure()) return error;
  const ffi::Span<const int64_t> matrices = h.dimensions();
  const BlockReflectorShape shape{matrices[0], matrices[1], matrices[2], offset, width, columns.first, columns.last};
  const bool has_next_t = next_t->dimensions()[1] > 0;
  PanelKernel next;
  if (auto error =
          find_panel_kernel(target, {regime, {variant.begin(), variant.end()}},
                            {shape.batch, shape.m, shape.n, shape.first, columns.next_width}, has_next_t, &next);
      error.failure())
    return error;
  const float* src;
  if (const cudaError_t error = place_operands(stream, h, operands, *result, *scales, &src); error != cudaSuccess)
    return status(target, error, matrices);
  float* const place = result->typed_data();
  const Enqueue next_panel = [&](cudaStream_t stream) {
    return next.launch(place, place, tau->typed_data(), has_next_t ? next_t->typed_data() : nullptr,
                       has_next_t ? data_of(*next_halves) : nullptr, stream);
  };
  return status(target,
                launch_look_ahead(shape, columns.next_width, early, next_panel, place, data_of(halves), t.typed_data(),
                                  scales->typed_data(), !has_scales, src, stream),
                matrices);
}

ffi::Error steps(cudaStream_t stream, Matrices src, ffi::Result<Matrices> h, ffi::Result<Vectors> scales,
                 ffi::Result<Matrices> couplings, ffi::RemainingRets results, Dimensions widths,
                 std::string_view kernels, Dimensions pairs, Dimensions look_ahead, Dimensions early, bool in_halves,
                 bool in_place, bool keep) {
  const char* const target = "jaxqr_steps";
  std::vector<StepResults> checked;
  const StepAttributes told{widths, pairs, look_ahead, early, in_halves, keep};
  if (auto error = check_steps(src, *h, *scales, *couplings, results, told, &checked); error.failure()) return error;
  const ffi::Span<const int64_t> matrices = src.dimensions(), of_couplings = couplings->dimensions();
  if (auto error =
          check_shape("jaxqr_steps: couplings", of_couplings, {of_couplings[0], of_couplings[1], kCouplingFloats});
      error.failure())
    return error;
  const std::vector<PanelKernelName> names = kernel_names(kernels);
  if (names.size() != checked.size()) {
    return ffi::Error::InvalidArgument(std::string(target) + ": " + std::to_string(names.size()) + " kernels for " +
                                       std::to_string(checked.size()) + " steps");
  }
  std::vector<FactorizationStep> steps;
  for (size_t i = 0; i < checked.size(); ++i) {
    const StepResults& step = checked[i];
    const bool updates = step.t != nullptr;
    if (auto error = check_width(target, step.width, updates ? kMaxBlockReflectorWidth : step.width); error.failure())
      return error;
    PanelKernel kernel;
    if (auto error = find_panel_kernel(
            target, names[i], {matrices[0], matrices[1], matrices[2], step.offset, step.width}, updates, &kernel);
        error.failure())
      return error;
    steps.push_back({names[i], step.offset, step.width, step.tau, step.t, static_cast<__half*>(step.halves),
                     step.t_stride, step.halves_stride, step.pairs, step.coupling, step.look_ahead, step.early});
  }
  if (in_place) {
    if (const cudaError_t error = copy_unless_aliased(stream, src, *h); error != cudaSuccess)
      return status(target, error, matrices);
  }
  return status(
      target,
      launch_steps(matrices[0], matrices[1], matrices[2], steps, in_halves,
                   in_place ? h->typed_data() : src.typed_data(), h->typed_data(), scales->typed_data(), stream),
      matrices);
}

}  // namespace
}  // namespace jaxqr

// Launches go to XLA's stream, and may be captured.
#define JAXQR_DEFINE_CUDA_HANDLER(name)                                                                        \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_##name##_cuda, jaxqr::name,                                              \
                                jaxqr::bind_##name(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>()), \
                                {ffi::Traits::kCmdBufferCompatible})

JAXQR_DEFINE_CUDA_HANDLER(panel);
JAXQR_DEFINE_CUDA_HANDLER(leaves);
JAXQR_DEFINE_CUDA_HANDLER(lift);
JAXQR_DEFINE_CUDA_HANDLER(tall_update);
JAXQR_DEFINE_CUDA_HANDLER(reflectors);
JAXQR_DEFINE_CUDA_HANDLER(block_reflector);
JAXQR_DEFINE_CUDA_HANDLER(look_ahead);
JAXQR_DEFINE_CUDA_HANDLER(steps);
#undef JAXQR_DEFINE_CUDA_HANDLER
