// Reference handlers of jaxqr_leaves and jaxqr_lift on the CPU: LAPACK's geqr2 of every leaf, and its orm2r on the
// leaves' parts of the stack's reflectors, in float64, written for clarity. The parts are upper triangular, and column
// c of their product takes reflectors k <= c alone: NaN of a later column stays there.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "bindings.h"
#include "handlers.h"
#include "householder_cpu.h"
#include "ieee_scope.h"
#include "leaves.h"
#include "shapes.h"

namespace jaxqr {
namespace {

// One matrix, from the panel's first pivot on.
void factor_leaves(const LeavesShape& shape, const float* src, float* h, float* tau, float* stack) {
  const int64_t n = shape.n, width = shape.width;
  for (int64_t row = 0; row < width; ++row) std::copy_n(src + row * n, width, stack + row * width);
  const RowSplit split = shape.split();
  for (int leaf = 0; leaf < shape.leaves; ++leaf) {
    float* const own = h + (width + split.first_row(leaf)) * n;
    std::vector<double> taus;
    factor_columns(src + (own - h), own, split.rows_of(leaf), n, width, width, &taus);
    std::copy(taus.begin(), taus.end(), tau + leaf * width);
    float* const triangle = stack + (1 + leaf) * width * width;
    for (int64_t row = 0; row < width; ++row)
      for (int64_t c = 0; c < width; ++c) triangle[row * width + c] = row <= c ? own[row * n + c] : 0.0f;
  }
}

void lift_reflectors(const LeavesShape& shape, float* h, const float* tau, const float* stack) {
  const int64_t n = shape.n, width = shape.width;
  for (int64_t row = 0; row < width; ++row) std::copy_n(stack + row * width, width, h + row * n);
  const RowSplit split = shape.split();
  for (int leaf = 0; leaf < shape.leaves; ++leaf) {
    float* const own = h + (width + split.first_row(leaf)) * n;
    const float* const part = stack + (1 + leaf) * width * width;
    const int64_t rows = split.rows_of(leaf);
    std::vector<double> v(rows * width);  // column-major
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < width; ++c) v[c * rows + i] = own[i * n + c];
    for (int64_t c = 0; c < width; ++c) {
      std::vector<double> y(rows, 0.0);
      for (int64_t i = 0; i <= c; ++i) y[i] = part[i * width + c];
      for (int64_t k = c; k >= 0; --k) apply_reflector(&v[k * rows + k], tau[leaf * width + k], &y[k], rows - k);
      for (int64_t i = 0; i < rows; ++i) own[i * n + c] = static_cast<float>(y[i]);
    }
  }
}

xla::ffi::Error leaves(Matrices src, xla::ffi::Result<Matrices> h, xla::ffi::Result<Matrices> tau,
                       xla::ffi::Result<Matrices> stack, int64_t offset, xla::ffi::Span<const int64_t> /*variant*/,
                       bool in_place) {
  LeavesShape shape;
  if (auto error = check_shape("jaxqr_leaves: h", h->dimensions(), shape_of(src.dimensions())); error.failure())
    return error;
  if (auto error = check_leaves("jaxqr_leaves", *h, *tau, *stack, offset, &shape); error.failure()) return error;
  if (in_place && src.typed_data() != h->typed_data())
    std::copy_n(src.typed_data(), src.element_count(), h->typed_data());
  const IeeeScope ieee;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t corner = (b * shape.m + offset) * shape.n + offset;
    factor_leaves(shape, src.typed_data() + corner, h->typed_data() + corner,
                  tau->typed_data() + b * shape.leaves * shape.width,
                  stack->typed_data() + b * shape.stack_rows() * shape.width);
  }
  return xla::ffi::Error::Success();
}

xla::ffi::Error lift(Matrices h, Matrices tau, Matrices stack, xla::ffi::Result<Matrices> result, int64_t offset) {
  LeavesShape shape;
  if (auto error = check_shape("jaxqr_lift: the result", result->dimensions(), shape_of(h.dimensions()));
      error.failure())
    return error;
  if (auto error = check_leaves("jaxqr_lift", h, tau, stack, offset, &shape); error.failure()) return error;
  if (h.typed_data() != result->typed_data()) std::copy_n(h.typed_data(), h.element_count(), result->typed_data());
  const IeeeScope ieee;
  for (int64_t b = 0; b < shape.batch; ++b) {
    lift_reflectors(shape, result->typed_data() + (b * shape.m + offset) * shape.n + offset,
                    tau.typed_data() + b * shape.leaves * shape.width,
                    stack.typed_data() + b * shape.stack_rows() * shape.width);
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_leaves_cpu, jaxqr::leaves, jaxqr::bind_leaves(xla::ffi::Ffi::Bind()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_lift_cpu, jaxqr::lift, jaxqr::bind_lift(xla::ffi::Ffi::Bind()));
