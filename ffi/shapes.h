// Argument checks shared by the CPU and the CUDA handlers. Each returns the error to hand to XLA, with the numbers in
// its message.
#ifndef JAXQR_FFI_SHAPES_H_
#define JAXQR_FFI_SHAPES_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaves.h"
#include "reflector_halves.h"
#include "step_slots.h"
#include "tall_update_shape.h"
#include "xla/ffi/api/ffi.h"

namespace jaxqr {

using Matrices = xla::ffi::BufferR3<xla::ffi::F32>;  // [batch, rows, columns]
using Vectors = xla::ffi::BufferR2<xla::ffi::F32>;   // [batch, length]
using Halves = xla::ffi::Buffer<xla::ffi::F16, 4>;   // reflector_halves.h: [batch, rows, 2, pitch]
using Dimensions = xla::ffi::Span<const int64_t>;

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
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

inline xla::ffi::Error check_halves(const std::string& target, const Halves& halves, Dimensions matrices,
                                    int64_t offset, int64_t width) {
  return check_shape(target + ": halves", halves.dimensions(),
                     {matrices[0], matrices[1] - offset, 2, reflector_pitch(width)});
}

// What a panel's kernels write, beside the panel itself: T and halves are empty where they are not wanted.
inline xla::ffi::Error check_panel(const std::string& target, Dimensions matrices, const Vectors& tau,
                                   const Matrices& t, const Halves& halves, int64_t offset, int64_t width) {
  const int64_t batch = matrices[0];
  if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
  if (auto error = check_shape(target + ": tau", tau.dimensions(), {batch, width}); error.failure()) return error;
  if (shape_of(t.dimensions()) == std::vector<int64_t>{batch, 0, 0})
    return check_shape(target + ": halves", halves.dimensions(), {batch, 0, 2, 0});
  if (auto error = check_halves(target, halves, matrices, offset, width); error.failure()) return error;
  return check_shape(target + ": t", t.dimensions(), {batch, width, width});
}

// A tall panel: `tau` is [batch, leaves, width], and every leaf has a row for each of its pivots.
inline xla::ffi::Error check_leaves(const std::string& target, const Matrices& h, const Matrices& tau,
                                    const Matrices& stack, int64_t offset, LeavesShape* shape) {
  const Dimensions matrices = h.dimensions();
  const int64_t leaves = tau.dimensions()[1], width = tau.dimensions()[2];
  *shape = {matrices[0], matrices[1], matrices[2], offset, width, leaves};
  if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
  const int64_t rows = matrices[1] - offset - width;
  if (leaves < 1 || leaves > rows / width) {
    return xla::ffi::Error::InvalidArgument(target + ": " + std::to_string(leaves) + " leaves of at least " +
                                            std::to_string(width) + " of " + std::to_string(rows) + " rows");
  }
  if (auto error = check_shape(target + ": tau", tau.dimensions(), {matrices[0], leaves, width}); error.failure())
    return error;
  return check_shape(target + ": stack", stack.dimensions(), {matrices[0], shape->stack_rows(), width});
}

// The update right of a tall panel; `width` is tau's, and `src` is where C is read, if an attribute says that it is
// there.
inline xla::ffi::Error check_tall_update(const Matrices& h, const Vectors& tau, xla::ffi::RemainingArgs rest,
                                         const Matrices& result, const Vectors& workspace, int64_t offset, bool has_src,
                                         TallUpdateShape* shape, std::optional<Matrices>* src) {
  const std::string target = "jaxqr_tall_update";
  const Dimensions matrices = h.dimensions();
  const int64_t width = tau.dimensions()[1];
  *shape = {matrices[0], matrices[1], matrices[2], offset, width};
  if (rest.size() != static_cast<size_t>(has_src)) {
    return xla::ffi::Error::InvalidArgument(target + ": " + std::to_string(2 + has_src) + " operands expected, got " +
                                            std::to_string(2 + rest.size()));
  }
  if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
  if (auto error = check_shape(target + ": tau", tau.dimensions(), {matrices[0], width}); error.failure()) return error;
  if (auto error = check_shape(target + ": the result", result.dimensions(), shape_of(matrices)); error.failure())
    return error;
  if (auto error = check_shape(target + ": the workspace", workspace.dimensions(), {matrices[0], shape->workspace()});
      error.failure())
    return error;
  if (!has_src) return xla::ffi::Error::Success();
  auto found = rest.get<Matrices>(0);
  if (found.has_error()) return found.error();
  *src = *found;
  return check_shape(target + ": src", (*src)->dimensions(), shape_of(matrices));
}

// A block of reflectors that jaxqr_reflectors makes, and the memory for it.
struct ReflectorResults {
  int64_t offset, width;
  float* t;
  void* halves;
};

// The results are T and halves of one block after the other, from the columns at `offset` on; T says how wide each is.
// `tau` has the values of the columns from `first` on.
inline xla::ffi::Error check_reflectors(const Matrices& h, const Vectors& tau, const xla::ffi::RemainingRets& results,
                                        int64_t offset, int64_t first, std::vector<ReflectorResults>* blocks) {
  const std::string target = "jaxqr_reflectors";
  const Dimensions matrices = h.dimensions();
  const int64_t batch = matrices[0], k = tau.dimensions()[1];
  if (auto error = check_shape(target + ": tau", tau.dimensions(), {batch, k}); error.failure()) return error;
  if (results.size() % 2 != 0)
    return xla::ffi::Error::InvalidArgument(target + ": pairs of results expected, got " +
                                            std::to_string(results.size()));
  for (size_t i = 0; i < results.size(); i += 2) {
    auto t = results.get<Matrices>(i);
    if (t.has_error()) return t.error();
    auto halves = results.get<Halves>(i + 1);
    if (halves.has_error()) return halves.error();
    const int64_t width = (*t)->dimensions()[1];
    if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
    if (offset < first || width > k - (offset - first)) {
      return xla::ffi::Error::InvalidArgument(target + ": offset = " + std::to_string(offset) +
                                              " and width = " + std::to_string(width) + " do not fit tau " +
                                              shape_text(shape_of(tau.dimensions())) + " of the columns from " +
                                              std::to_string(first) + " on");
    }
    if (auto error = check_shape(target + ": t", (*t)->dimensions(), {batch, width, width}); error.failure())
      return error;
    if (auto error = check_halves(target, **halves, matrices, offset, width); error.failure()) return error;
    blocks->push_back({offset, width, (*t)->typed_data(), (*halves)->untyped_data()});
    offset += width;
  }
  return xla::ffi::Error::Success();
}

// The optional operands of an update: an attribute for each says whether it is there.
struct BlockReflectorOperands {
  std::optional<Vectors> scales;  // [batch, n], read; otherwise made
  std::optional<Matrices> src;    // where C is read; otherwise in place
};

inline xla::ffi::Error optional_operands(const std::string& target, xla::ffi::RemainingArgs rest, bool has_scales,
                                         bool has_src, BlockReflectorOperands* operands) {
  const size_t expected = static_cast<size_t>(has_scales) + static_cast<size_t>(has_src);
  if (rest.size() != expected) {
    return xla::ffi::Error::InvalidArgument(target + ": " + std::to_string(3 + expected) + " operands expected, got " +
                                            std::to_string(3 + rest.size()));
  }
  if (has_scales) {
    auto scales = rest.get<Vectors>(0);
    if (scales.has_error()) return scales.error();
    operands->scales = *scales;
  }
  if (has_src) {
    auto src = rest.get<Matrices>(expected - 1);
    if (src.has_error()) return src.error();
    operands->src = *src;
  }
  return xla::ffi::Error::Success();
}

// Of C the first `known` rows and columns are the identity's and not read. Where all are, `h_in` may be empty.
inline xla::ffi::Error check_block_reflector(const std::string& target, const Matrices& h_in, const Halves& halves,
                                             const Matrices& t, const BlockReflectorOperands& operands,
                                             const Matrices& h_out, const Vectors& scales_out, int64_t offset,
                                             int64_t width, int64_t first, int64_t last, int64_t known = 0) {
  const bool nothing_in = h_in.element_count() == 0 && known > 0;
  const Dimensions matrices = nothing_in ? h_out.dimensions() : h_in.dimensions();
  // V's columns need not be columns of these matrices.
  if (offset < 0 || width < 1 || offset > matrices[1] || width > matrices[1] - offset) {
    return xla::ffi::Error::InvalidArgument(
        target + ": offset = " + std::to_string(offset) + " and width = " + std::to_string(width) + " do not fit " +
        shape_text(shape_of(matrices)) + ": 0 <= offset, 1 <= width, offset + width <= " + std::to_string(matrices[1]));
  }
  if (auto error = check_shape(target + ": t", t.dimensions(), {matrices[0], width, width}); error.failure())
    return error;
  if (auto error = check_halves(target, halves, matrices, offset, width); error.failure()) return error;
  const std::vector<int64_t> of_columns = {matrices[0], matrices[2]};
  if (operands.scales) {
    if (auto error = check_shape(target + ": scales", operands.scales->dimensions(), of_columns); error.failure())
      return error;
  }
  if (operands.src) {
    if (auto error = check_shape(target + ": src", operands.src->dimensions(), shape_of(matrices)); error.failure())
      return error;
  }
  if (auto error = check_shape(target + ": the result", h_out.dimensions(), shape_of(matrices)); error.failure())
    return error;
  if (auto error = check_shape(target + ": the resulting scales", scales_out.dimensions(), of_columns); error.failure())
    return error;
  if (known < 0 || (known > 0 && operands.src)) {
    return xla::ffi::Error::InvalidArgument(target + ": known = " + std::to_string(known) +
                                            ", expected 0 or, of matrices without a src, more");
  }
  if (nothing_in && known < std::min(matrices[1] - offset, last - first)) {
    return xla::ffi::Error::InvalidArgument(target + ": h is " + shape_text(shape_of(h_in.dimensions())) +
                                            ", and known = " + std::to_string(known) + " is not all that is updated");
  }
  if (first < 0 || last < first || last > matrices[2]) {
    return xla::ffi::Error::InvalidArgument(target + ": first = " + std::to_string(first) +
                                            " and last = " + std::to_string(last) +
                                            " do not fit: 0 <= first <= last <= n = " + std::to_string(matrices[2]));
  }
  return xla::ffi::Error::Success();
}

// Of an update of all columns from `first` to `last`, beside which the first `next_width` of them are factored.
struct LookAheadShape {
  int64_t first, last, next_width;
};

inline xla::ffi::Error check_look_ahead(const Matrices& h_in, const Halves& halves, const Matrices& t,
                                        const BlockReflectorOperands& operands, const Matrices& h_out,
                                        const Vectors& scales_out, const Vectors& tau, const Matrices& next_t,
                                        const Halves& next_halves, int64_t offset, int64_t width, int64_t early,
                                        LookAheadShape* shape) {
  const std::string target = "jaxqr_look_ahead";
  *shape = {offset + width, h_in.dimensions()[2], tau.dimensions()[1]};
  if (early < 0)
    return xla::ffi::Error::InvalidArgument(target + ": early = " + std::to_string(early) + ", expected at least 0");
  if (auto error = check_block_reflector(target, h_in, halves, t, operands, h_out, scales_out, offset, width,
                                         shape->first, shape->last);
      error.failure())
    return error;
  return check_panel(target + ": the next panel", h_in.dimensions(), tau, next_t, next_halves, shape->first,
                     shape->next_width);
}

// What jaxqr_steps is told of its steps: of each its width, whether it pairs with the next, whether its group looks
// ahead, and with how many early matrices; and of all whether they go in halves, and whether T and halves are kept.
struct StepAttributes {
  Dimensions widths, pairs, look_ahead, early;
  bool in_halves, keep;
};

// A step of jaxqr_steps and the memory for it: t and halves, if an update follows, are so many elements a matrix.
struct StepResults {
  int64_t offset, width;
  float* tau;
  float* t;
  void* halves;
  int64_t t_stride, halves_stride;
  bool pairs;
  float* coupling;  // where it pairs
  bool look_ahead;
  int64_t early;
};

// That every step may do what it is told to.
inline xla::ffi::Error check_step_attributes(const std::string& target, const StepAttributes& told, int64_t n) {
  const size_t count = told.widths.size();
  for (const auto& [name, values] : {std::pair<const char*, Dimensions>{"pairs", told.pairs},
                                     {"look_ahead", told.look_ahead},
                                     {"early", told.early}}) {
    if (values.size() != count) {
      return xla::ffi::Error::InvalidArgument(target + ": " + name + " is of " + std::to_string(values.size()) +
                                              " steps, expected " + std::to_string(count));
    }
  }
  int64_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string step = target + ": step " + std::to_string(i);
    const bool is_last = i + 1 == count;
    next += told.widths[i];
    if (told.pairs[i] && (is_last || told.pairs[i + 1] || next + told.widths[i + 1] >= n))
      return xla::ffi::Error::InvalidArgument(step +
                                              " pairs, expected a next step that does not, with columns right of it");
    if (told.look_ahead[i] && (is_last || told.pairs[i] || told.in_halves))
      return xla::ffi::Error::InvalidArgument(step +
                                              " looks ahead, expected a next step, no pair with that, and no halves");
    if (told.early[i] < 0)
      return xla::ffi::Error::InvalidArgument(step + " has early = " + std::to_string(told.early[i]) +
                                              ", expected at least 0");
  }
  return xla::ffi::Error::Success();
}

// `results` are every step's tau, and then T and halves: where they are kept of each step with an update, in turn,
// otherwise a pair for each slot, of the rows of the first step and the width of the widest. `couplings` are of each
// slot, and what a matrix takes the platform knows.
inline xla::ffi::Error check_steps(const Matrices& src, const Matrices& h, const Vectors& scales,
                                   const Matrices& couplings, const xla::ffi::RemainingRets& results,
                                   const StepAttributes& told, std::vector<StepResults>* steps) {
  const std::string target = "jaxqr_steps";
  const Dimensions matrices = src.dimensions(), widths = told.widths;
  const int64_t batch = matrices[0], n = matrices[2], reflectors = std::min(matrices[1], n);
  const bool keep = told.keep;
  if (auto error = check_shape(target + ": h", h.dimensions(), shape_of(matrices)); error.failure()) return error;
  if (auto error = check_shape(target + ": scales", scales.dimensions(), {batch, n}); error.failure()) return error;
  int64_t offset = 0, updates = 0, widest = 0;
  for (const int64_t width : widths) {
    if (auto error = check_columns(target, matrices, offset, width); error.failure()) return error;
    offset += width;
    if (offset < n) ++updates, widest = std::max(widest, width);
  }
  if (auto error = check_step_attributes(target, told, n); error.failure()) return error;
  const auto any = [](Dimensions flags) { return std::any_of(flags.begin(), flags.end(), [](auto x) { return x; }); };
  const StepSlots slots{any(told.pairs), any(told.look_ahead)};
  const size_t kept = keep ? updates : updates > 0 ? slots.reflectors() : 0, expected = widths.size() + 2 * kept;
  if (offset != reflectors || results.size() != expected) {
    return xla::ffi::Error::InvalidArgument(target + ": steps of " + std::to_string(offset) + " columns with " +
                                            std::to_string(results.size()) + " results, expected " +
                                            std::to_string(reflectors) + " columns with " + std::to_string(expected));
  }
  const int64_t coupling = couplings.dimensions()[2];
  if (auto error = check_shape(target + ": couplings", couplings.dimensions(), {slots.couplings(), batch, coupling});
      error.failure())
    return error;
  offset = 0;
  int64_t group = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    const bool is_second = i > 0 && told.pairs[i - 1];
    StepResults step{};
    step.offset = offset;
    step.width = widths[i];
    step.pairs = told.pairs[i];
    if (step.pairs) step.coupling = couplings.typed_data() + slots.coupling_of(group) * batch * coupling;
    step.look_ahead = told.look_ahead[i];
    step.early = told.early[i];
    auto tau = results.get<Vectors>(i);
    if (tau.has_error()) return tau.error();
    if (auto error = check_shape(target + ": tau", (*tau)->dimensions(), {batch, step.width}); error.failure())
      return error;
    step.tau = (*tau)->typed_data();
    if (offset + step.width < n) {
      const int64_t width = keep ? step.width : widest, first_row = keep ? offset : 0;
      // Steps without an update are the last ones.
      const size_t slot = widths.size() + 2 * (keep ? i : slots.reflectors_of(group, is_second));
      auto t = results.get<Matrices>(slot);
      if (t.has_error()) return t.error();
      auto halves = results.get<Halves>(slot + 1);
      if (halves.has_error()) return halves.error();
      if (auto error = check_shape(target + ": t", (*t)->dimensions(), {batch, width, width}); error.failure())
        return error;
      if (auto error = check_halves(target, **halves, matrices, first_row, width); error.failure()) return error;
      step.t = (*t)->typed_data();
      step.halves = (*halves)->untyped_data();
      step.t_stride = width * width;
      step.halves_stride = (matrices[1] - first_row) * 2 * reflector_pitch(width);
    }
    steps->push_back(step);
    offset += step.width;
    group += !step.pairs;
  }
  return xla::ffi::Error::Success();
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_SHAPES_H_
