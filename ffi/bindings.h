// What each target takes, returns and is told, the same on every platform: from the binding of a handler, to which a
// platform may have added what it needs itself.
#ifndef JAXQR_FFI_BINDINGS_H_
#define JAXQR_FFI_BINDINGS_H_

#include <cstdint>
#include <string_view>
#include <utility>

#include "shapes.h"

namespace jaxqr {

template <typename Binding>
auto bind_panel(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Ret<Matrices>()
      .template Ret<Vectors>()
      .template Ret<Matrices>()
      .template Ret<Halves>()
      .template Attr<int64_t>("offset")
      .template Attr<int64_t>("width")
      .template Attr<std::string_view>("regime")
      .template Attr<xla::ffi::Span<const int64_t>>("variant")
      .template Attr<bool>("in_place");
}

template <typename Binding>
auto bind_leaves(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Ret<Matrices>()
      .template Ret<Matrices>()
      .template Ret<Matrices>()
      .template Attr<int64_t>("offset")
      .template Attr<xla::ffi::Span<const int64_t>>("variant")
      .template Attr<bool>("in_place");
}

template <typename Binding>
auto bind_lift(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Arg<Matrices>()
      .template Arg<Matrices>()
      .template Ret<Matrices>()
      .template Attr<int64_t>("offset");
}

template <typename Binding>
auto bind_tall_update(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Arg<Vectors>()
      .RemainingArgs()
      .template Ret<Matrices>()
      .template Ret<Vectors>()
      .template Attr<int64_t>("offset")
      .template Attr<bool>("has_src");
}

template <typename Binding>
auto bind_reflectors(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Arg<Vectors>()
      .RemainingRets()
      .template Attr<int64_t>("offset")
      .template Attr<int64_t>("first");
}

template <typename Binding>
auto bind_block_reflector(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Arg<Halves>()
      .template Arg<Matrices>()
      .RemainingArgs()
      .template Ret<Matrices>()
      .template Ret<Vectors>()
      .template Attr<int64_t>("offset")
      .template Attr<int64_t>("width")
      .template Attr<int64_t>("first")
      .template Attr<int64_t>("last")
      .template Attr<int64_t>("known")
      .template Attr<bool>("transpose")
      .template Attr<bool>("has_scales")
      .template Attr<bool>("has_src")
      .template Attr<bool>("remake_scales");
}

template <typename Binding>
auto bind_look_ahead(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Arg<Halves>()
      .template Arg<Matrices>()
      .RemainingArgs()
      .template Ret<Matrices>()
      .template Ret<Vectors>()
      .template Ret<Vectors>()
      .template Ret<Matrices>()
      .template Ret<Halves>()
      .template Attr<int64_t>("offset")
      .template Attr<int64_t>("width")
      .template Attr<int64_t>("early")
      .template Attr<std::string_view>("regime")
      .template Attr<xla::ffi::Span<const int64_t>>("variant")
      .template Attr<bool>("has_scales")
      .template Attr<bool>("has_src");
}

template <typename Binding>
auto bind_steps(Binding&& binding) {
  return std::forward<Binding>(binding)
      .template Arg<Matrices>()
      .template Ret<Matrices>()
      .template Ret<Vectors>()
      .template Ret<Matrices>()
      .RemainingRets()
      .template Attr<xla::ffi::Span<const int64_t>>("widths")
      .template Attr<std::string_view>("kernels")
      .template Attr<xla::ffi::Span<const int64_t>>("pairs")
      .template Attr<xla::ffi::Span<const int64_t>>("look_ahead")
      .template Attr<xla::ffi::Span<const int64_t>>("early")
      .template Attr<bool>("in_halves")
      .template Attr<bool>("in_place")
      .template Attr<bool>("keep");
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_BINDINGS_H_
