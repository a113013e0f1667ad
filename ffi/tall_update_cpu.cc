// Reference handler of jaxqr_tall_update on the CPU: one reflector after the other, in float64, written for clarity. A
// NaN in a column of C stays there.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "bindings.h"
#include "handlers.h"
#include "householder_cpu.h"
#include "ieee_scope.h"
#include "shapes.h"
#include "tall_update_shape.h"

namespace jaxqr {
namespace {

// One matrix, from the panel's first pivot on; C is read from `src`.
void update_columns(const TallUpdateShape& shape, float* h, const float* tau, const float* src) {
  const int64_t n = shape.n, rows = shape.rows(), width = shape.width;
  std::vector<double> v(rows * width);  // column-major
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < width; ++k) v[k * rows + i] = h[i * n + k];
  std::vector<double> column(rows);
  for (int64_t c = width; c < width + shape.columns(); ++c) {
    for (int64_t i = 0; i < rows; ++i) column[i] = src[i * n + c];
    for (int64_t k = 0; k < width; ++k) apply_reflector(&v[k * rows + k], tau[k], &column[k], rows - k);
    for (int64_t i = 0; i < rows; ++i) h[i * n + c] = static_cast<float>(column[i]);
  }
}

xla::ffi::Error tall_update(Matrices h, Vectors tau, xla::ffi::RemainingArgs rest, xla::ffi::Result<Matrices> result,
                            xla::ffi::Result<Vectors> workspace, int64_t offset, bool has_src) {
  TallUpdateShape shape;
  std::optional<Matrices> src;
  if (auto error = check_tall_update(h, tau, rest, *result, *workspace, offset, has_src, &shape, &src); error.failure())
    return error;
  if (h.typed_data() != result->typed_data()) std::copy_n(h.typed_data(), h.element_count(), result->typed_data());
  const float* const from = src ? src->typed_data() : result->typed_data();
  const IeeeScope ieee;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t corner = (b * shape.m + offset) * shape.n + offset;
    update_columns(shape, result->typed_data() + corner, tau.typed_data() + b * shape.width, from + corner);
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxqr

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxqr_tall_update_cpu, jaxqr::tall_update,
                              jaxqr::bind_tall_update(xla::ffi::Ffi::Bind()));
