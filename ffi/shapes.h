// Argument checks shared by the CPU and the CUDA handlers. Each returns the error to hand to XLA, with the numbers in
// its message.
#ifndef JAXQR_FFI_SHAPES_H_
#define JAXQR_FFI_SHAPES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace jaxqr {

using Matrices = xla::ffi::BufferR3<xla::ffi::F32>;  // [batch, rows, columns]
using Vectors = xla::ffi::BufferR2<xla::ffi::F32>;   // [batch, length]
using Dimensions = xla::ffi::Span<const int64_t>;

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "f32[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

inline std::vector<int64_t> shape_of(Dimensions dimensions) { return {dimensions.begin(), dimensions.end()}; }

inline xla::ffi::Error check_shape(const std::string& where, Dimensions found, const std::vector<int64_t>& expected) {
  if (shape_of(found) == expected) return xla::ffi::Error::Success();
  return xla::ffi::Error::InvalidArgument(where + " is " + shape_text(shape_of(found)) + ", expected " +
                                          shape_text(expected));
}

// A panel's columns lie inside the matrix, and each of its pivots has a row.
inline xla::ffi::Error check_columns(const std::string& target, Dimensions matrices, int64_t offset, int64_t width) {
  const int64_t reflectors = std::min(matrices[1], matrices[2]);
  if (offset >= 0 && width >= 1 && offset <= reflectors && width <= reflectors - offset)
    return xla::ffi::Error::Success();
  return xla::ffi::Error::InvalidArgument(
      target + ": offset = " + std::to_string(offset) + " and width = " + std::to_string(width) + " do not fit " +
      shape_text(shape_of(matrices)) + ": 0 <= offset, 1 <= width and offset + width <= " + std::to_string(reflectors));
}

inline xla::ffi::Error check_panel(const Matrices& src, const Matrices& h, const Vectors& tau, const Matrices& t,
                                   int64_t offset, int64_t width) {
  const Dimensions matrices = src.dimensions();
  const int64_t batch = matrices[0];
  if (auto error = check_columns("jaxqr_panel", matrices, offset, width); error.failure()) return error;
  if (auto error = check_shape("jaxqr_panel: h", h.dimensions(), shape_of(matrices)); error.failure()) return error;
  if (auto error = check_shape("jaxqr_panel: tau", tau.dimensions(), {batch, width}); error.failure()) return error;
  if (shape_of(t.dimensions()) == std::vector<int64_t>{batch, 0, 0}) return xla::ffi::Error::Success();
  return check_shape("jaxqr_panel: t", t.dimensions(), {batch, width, width});
}

// `src` is `h_in` where the caller gave none.
inline xla::ffi::Error check_block_reflector(const Matrices& h_in, const Matrices& t, const Matrices& src,
                                             const Matrices& h_out, int64_t offset, int64_t width, int64_t first,
                                             int64_t last) {
  const std::string target = "jaxqr_block_reflector";
  const Dimensions matrices = h_in.dimensions();
  if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
  if (auto error = check_shape(target + ": t", t.dimensions(), {matrices[0], width, width}); error.failure())
    return error;
  if (auto error = check_shape(target + ": src", src.dimensions(), shape_of(matrices)); error.failure()) return error;
  if (auto error = check_shape(target + ": the result", h_out.dimensions(), shape_of(matrices)); error.failure())
    return error;
  if (first < offset + width || last < first || last > matrices[2]) {
    return xla::ffi::Error::InvalidArgument(target + ": first = " + std::to_string(first) +
                                            " and last = " + std::to_string(last) +
                                            " do not fit: offset + width = " + std::to_string(offset + width) +
                                            " <= first <= last <= n = " + std::to_string(matrices[2]));
  }
  return xla::ffi::Error::Success();
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_SHAPES_H_
