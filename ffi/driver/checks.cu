#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "../block_reflector.h"
#include "../cluster_panel.h"
#include "../regimes.h"
#include "../scales.h"
#include "../tall.h"
#include "../tall_update.h"
#include "../whole_regimes.h"
#include "checks.h"
#include "compiled_kernels.h"
#include "device.h"

namespace driver {
namespace {

using jaxqr::BlockReflectorShape;
using jaxqr::PanelKernel;
using jaxqr::PanelKernelName;
using jaxqr::PanelShape;

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

int failures = 0;

void report(bool good, const std::string& what, double factor, double t_error) {
  if (!good) ++failures;
  if (!good) std::printf("FAILED %s: error %.3g, T or untouched part %.3g\n", what.c_str(), factor, t_error);
}

// V[row][k] of a factored panel of `rows` rows, row-major with stride n.
double reflector(const float* panel, int64_t n, int64_t row, int64_t k) {
  return row < k ? 0.0 : row == k ? 1.0 : panel[row * n + k];
}

// Largest error of the halves of one matrix's reflectors, in units of eps.
double halves_error(const PanelShape& s, const float* h, const __half* halves) {
  const int64_t pitch = jaxqr::reflector_pitch(s.width);
  double worst = 0.0;
  for (int64_t row = 0; row < s.m - s.offset; ++row) {
    for (int64_t k = 0; k < pitch; ++k) {
      const double expected = k < s.width ? reflector(h + s.offset * s.n + s.offset, s.n, row, k) : 0.0;
      const __half* const parts = halves + row * 2 * pitch + k;
      const double found = (double{__half2float(parts[0])} + __half2float(parts[pitch])) / jaxqr::kReflectorScale;
      const double error = std::fabs(found - expected) / std::numeric_limits<float>::epsilon();
      worst = std::isnan(error) ? error : std::max(worst, error);
    }
  }
  return worst;
}

// LAPACK's larft, forward and columnwise, of the reflectors in `panel`, with `rows` rows and row stride n.
std::vector<double> reference_t(const float* panel, int64_t n, const float* tau, int64_t rows, int64_t width) {
  std::vector<double> t(width * width, 0.0);
  for (int64_t k = 0; k < width; ++k) {
    std::vector<double> dots(k, 0.0);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t r = k; r < rows; ++r) dots[i] += reflector(panel, n, r, i) * reflector(panel, n, r, k);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t l = i; l < k; ++l) t[i * width + k] -= tau[k] * t[i * width + l] * dots[l];
    t[k * width + k] = tau[k];
  }
  return t;
}

// Largest column error of A = Q·R in units of eps·‖A_j‖, of the panel's first `columns`, and of T in units of
// eps·max|T|, for one matrix.
void panel_errors(const PanelShape& s, int64_t columns, const float* a, const float* h, const float* tau,
                  const float* t, double* factor, double* t_error) {
  const int64_t rows = s.m - s.offset, w = s.width, n = s.n;
  const float* const panel = h + s.offset * n + s.offset;
  const float* const source = a + s.offset * n + s.offset;
  const double eps = std::numeric_limits<float>::epsilon();
  *factor = *t_error = 0.0;
  std::vector<double> column(rows);
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t r = 0; r < rows; ++r) column[r] = r <= j ? panel[r * n + j] : 0.0;
    for (int64_t k = w - 1; k >= 0; --k) {
      double dot = 0.0;
      for (int64_t r = k; r < rows; ++r) dot += reflector(panel, n, r, k) * column[r];
      for (int64_t r = k; r < rows; ++r) column[r] -= tau[k] * dot * reflector(panel, n, r, k);
    }
    double error = 0.0, norm = 0.0;
    for (int64_t r = 0; r < rows; ++r) {
      error += std::pow(column[r] - source[r * n + j], 2);
      norm += std::pow(static_cast<double>(source[r * n + j]), 2);
    }
    *factor = std::max(*factor, std::sqrt(error / norm) / eps);
    if (std::isnan(error)) *factor = error;
  }
  if (t == nullptr) return;
  const std::vector<double> reference = reference_t(panel, n, tau, rows, w);
  double largest = std::numeric_limits<float>::min();
  for (double x : reference) largest = std::max(largest, std::fabs(x));
  for (int64_t i = 0; i < w * w; ++i) {
    const double error = std::fabs(t[i] - reference[i]) / (largest * eps);
    *t_error = std::isnan(error) ? error : std::max(*t_error, error);
  }
}

// Random numbers but for the panel's first columns: a tiny tail, a column and its copy, and zeros.
std::vector<float> panel_floats(const PanelShape& s) {
  std::vector<float> a = random_floats(s.batch * s.m * s.n, 1);
  for (int64_t i = 0; i < s.batch * s.m && s.width >= 6; ++i) {
    float* const row = &a[i * s.n + s.offset];
    if (i % s.m > s.offset) row[0] *= 1e-30f;
    row[3] = row[2];
    row[5] = 0.0f;
  }
  return a;
}

void check_panel(const PanelKernelName& name, const PanelShape& s, bool has_t, bool in_place) {
  const PanelKernel kernel = jaxqr::panel_kernel(name, s, has_t);
  const int64_t columns = jaxqr::factors_all_columns(name.regime) ? s.n : s.width;
  const std::vector<float> a = panel_floats(s);
  const DeviceFloats source(a), result(in_place ? a : std::vector<float>(a.size(), kPoison)),
      tau(std::vector<float>(s.batch * s.width, kPoison)),
      t(std::vector<float>(has_t ? s.batch * s.width * s.width : 0, kPoison));
  const DeviceHalves halves(std::vector<__half>(has_t ? halves_count(s) : 0, __float2half(kPoison)));
  const float* const src = in_place ? result.get() : source.get();
  REQUIRE(kernel.launch(src, result.get(), tau.get(), has_t ? t.get() : nullptr, halves.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  const std::vector<__half> parts = halves.host();
  const std::vector<float> h = result.host(), taus = tau.host(), ts = t.host();
  double factor = 0.0, t_error = 0.0;
  for (int64_t b : {int64_t{0}, s.batch - 1}) {
    double f, e;
    panel_errors(s, columns, &a[b * s.m * s.n], &h[b * s.m * s.n], &taus[b * s.width],
                 has_t ? &ts[b * s.width * s.width] : nullptr, &f, &e);
    factor = std::isnan(f) ? f : std::max(factor, f);
    t_error = std::isnan(e) ? e : std::max(t_error, e);
    if (has_t && !(halves_error(s, &h[b * s.m * s.n], &parts[b * (halves_count(s) / s.batch)]) <= 0.5))
      t_error = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < s.m * s.n; ++i) {  // what is not the panel's is untouched
      const int64_t r = i / s.n - s.offset, c = i % s.n - s.offset;
      if (r >= 0 && c >= 0 && c < columns) continue;
      const float expected = in_place ? a[b * s.m * s.n + i] : kPoison, found = h[b * s.m * s.n + i];
      if (std::memcmp(&expected, &found, sizeof found) != 0) t_error = std::numeric_limits<double>::infinity();
    }
  }
  char what[200];
  std::snprintf(what, sizeof what, "%s, batch %d, %d×%d, offset %d, width %d%s%s", jaxqr::text_of(name).c_str(),
                int(s.batch), int(s.m), int(s.n), int(s.offset), int(s.width), has_t ? ", T" : "",
                in_place ? ", in place" : "");
  report(factor < 10 && t_error < 300, what, factor, t_error);
}

// A tall panel, whose stack is factored on the host.
void check_tall(const jaxqr::LeavesShape& s, const jaxqr::PanelVariant& variant, bool in_place) {
  const int64_t size = s.m * s.n, stack_size = s.stack_rows() * s.width;
  const std::vector<float> a = random_floats(s.batch * size, 5);
  const DeviceFloats source(a), result(in_place ? a : std::vector<float>(a.size(), kPoison)),
      tau(std::vector<float>(s.batch * s.leaves * s.width, kPoison)),
      stack(std::vector<float>(s.batch * stack_size, kPoison));
  const float* const src = in_place ? result.get() : source.get();
  REQUIRE(jaxqr::launch_panel_leaves(variant, s, src, result.get(), tau.get(), nullptr));
  REQUIRE(jaxqr::launch_stack(s, src, result.get(), stack.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  std::vector<float> factored = stack.host(), taus(s.batch * s.width);
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t rows = s.stack_rows(), w = s.width;
    std::vector<double> x(&factored[b * stack_size], &factored[b * stack_size] + stack_size);
    for (int64_t k = 0; k < w; ++k) {
      double square = 0.0;
      for (int64_t r = k + 1; r < rows; ++r) square += x[r * w + k] * x[r * w + k];
      const double alpha = x[k * w + k], beta = -std::copysign(std::sqrt(alpha * alpha + square), alpha);
      const double tau_k = (beta - alpha) / beta;
      for (int64_t r = k + 1; r < rows; ++r) x[r * w + k] /= alpha - beta;
      for (int64_t c = k + 1; c < w; ++c) {
        double dot = x[k * w + c];
        for (int64_t r = k + 1; r < rows; ++r) dot += x[r * w + k] * x[r * w + c];
        x[k * w + c] -= tau_k * dot;
        for (int64_t r = k + 1; r < rows; ++r) x[r * w + c] -= tau_k * dot * x[r * w + k];
      }
      x[k * w + k] = beta;
      taus[b * w + k] = static_cast<float>(tau_k);
    }
    std::copy(x.begin(), x.end(), &factored[b * stack_size]);
  }
  const DeviceFloats root(factored);
  REQUIRE(jaxqr::launch_lift(s, result.get(), tau.get(), root.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  const std::vector<float> h = result.host();
  double factor = 0.0, untouched = 0.0;
  for (int64_t b = 0; b < s.batch; ++b) {
    double f, unused;
    panel_errors({s.batch, s.m, s.n, s.offset, s.width}, s.width, &a[b * size], &h[b * size], &taus[b * s.width],
                 nullptr, &f, &unused);
    factor = std::isnan(f) ? f : std::max(factor, f);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t r = i / s.n - s.offset, c = i % s.n - s.offset;
      if (r >= 0 && c >= 0 && c < s.width) continue;
      const float expected = in_place ? a[b * size + i] : kPoison;
      if (std::memcmp(&expected, &h[b * size + i], sizeof expected) != 0)
        untouched = std::numeric_limits<double>::infinity();
    }
  }
  char what[200];
  std::snprintf(what, sizeof what, "tall batch %d, %d×%d, offset %d, width %d, %d leaves%s", int(s.batch), int(s.m),
                int(s.n), int(s.offset), int(s.width), int(s.leaves), in_place ? ", in place" : "");
  report(factor < 10 && untouched == 0, what, factor, untouched);
}

// A block of `width` reflectors from the diagonal element `offset` on, with entries of a few tenths, and a T like those
// that belong to such. Only the formula is under test, so that this T's need not.
struct TestBlock {
  int64_t m, n, offset, width;
  std::vector<float> t;
  std::vector<__half> halves;

  // Of random matrices, whose elements of the reflectors become smaller.
  TestBlock(std::vector<float>* h, int64_t batch, int64_t m, int64_t n, int64_t offset, int64_t width)
      : m(m), n(n), offset(offset), width(width), t(batch * width * width, 0.0f) {
    const int64_t rows = m - offset, pitch = jaxqr::reflector_pitch(width);
    halves.resize(batch * rows * 2 * pitch, __float2half(0.0f));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < width; ++i)
        for (int64_t j = i; j < width; ++j)
          t[b * width * width + i * width + j] = i == j ? 1.2f : 0.1f * std::cos(static_cast<float>(i * 7 + j));
      float* const panel = &(*h)[b * m * n + offset * (n + 1)];
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < width; ++k) {
          panel[r * n + k] /= std::sqrt(static_cast<float>(rows));
          const float v = jaxqr::kReflectorScale * reflector(panel, n, r, k);
          __half* const high = &halves[(b * rows + r) * 2 * pitch + k];
          *high = __float2half(v);
          high[pitch] = __float2half(v - __half2float(*high));
        }
      }
    }
  }

  // Updates a column's rows from `offset` on, given with all from `first` on.
  void apply(const std::vector<float>& h, int64_t b, bool transpose, int64_t first, std::vector<double>* column) const {
    const float* const panel = &h[b * m * n + offset * (n + 1)];
    double* const c = column->data() + offset - first;
    std::vector<double> dots(width, 0.0), weights(width, 0.0);
    for (int64_t r = 0; r < m - offset; ++r)
      for (int64_t k = 0; k < width; ++k) dots[k] += reflector(panel, n, r, k) * c[r];
    for (int64_t k = 0; k < width; ++k)
      for (int64_t l = 0; l <= k; ++l)
        weights[transpose ? k : l] += t[b * width * width + l * width + k] * dots[transpose ? l : k];
    for (int64_t r = 0; r < m - offset; ++r)
      for (int64_t k = 0; k < width; ++k) c[r] -= reflector(panel, n, r, k) * weights[k];
  }
};

// Columns of very different size, and a NaN in row `bad_row` of `bad_column` of the first matrix.
void make_hard(std::vector<float>* c, const BlockReflectorShape& s, int64_t bad_row, int64_t bad_column) {
  for (int64_t row = 0; row < s.batch * s.m; ++row)
    for (int64_t j = s.first; j < s.last; ++j)
      (*c)[row * s.n + j] *= j % 3 == 0 ? 0x1p-110f : j % 3 == 1 ? 1 : 0x1p110f;
  (*c)[bad_row * s.n + bad_column] = kPoison;
}

// The largest error of the updated columns of the first and the last matrix, in eps of the columns' norms, but for that
// of `bad_column` of the first one, and Inf if anything else has changed. T's block reflector is not orthogonal: it
// lets columns grow.
double worst_error(const BlockReflectorShape& s, const std::vector<const TestBlock*>& blocks, bool transpose,
                   const std::vector<float>& h, const std::vector<float>& c, const std::vector<float>& updated,
                   int64_t bad_column) {
  const int64_t size = s.m * s.n, rows = s.m - s.offset;
  double worst = 0.0;
  for (int64_t b : {int64_t{0}, s.batch - 1}) {
    for (int64_t j = s.first; j < s.last; ++j) {
      if (b == 0 && j == bad_column) continue;
      std::vector<double> column(rows);
      double norm = 0.0, updated_norm = 0.0, error = 0.0;
      for (int64_t r = 0; r < rows; ++r) {
        column[r] = c[b * size + (s.offset + r) * s.n + j];
        norm += column[r] * column[r];
      }
      for (const TestBlock* block : blocks) block->apply(h, b, transpose, s.offset, &column);
      for (int64_t r = 0; r < rows; ++r) {
        error += std::pow(updated[b * size + (s.offset + r) * s.n + j] - column[r], 2);
        updated_norm += column[r] * column[r];
      }
      const double relative =
          error == 0.0 ? 0.0 : std::sqrt(error / std::max(norm, updated_norm)) / std::numeric_limits<float>::epsilon();
      worst = std::isnan(relative) ? relative : std::max(worst, relative);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (i / s.n >= s.offset && i % s.n >= s.first && i % s.n < s.last) continue;
      if (std::memcmp(&h[b * size + i], &updated[b * size + i], sizeof(float)) != 0)
        worst = std::numeric_limits<double>::infinity();
    }
  }
  return worst;
}

// Whether the scales of the updated columns are those of what is written, and the others as they were.
bool are_scales_of(const BlockReflectorShape& s, const std::vector<float>& updated, const std::vector<float>& before,
                   const std::vector<float>& scales) {
  for (int64_t i = 0; i < s.batch * s.n; ++i) {
    const int64_t b = i / s.n, j = i % s.n;
    float expected = before[i];
    if (j >= s.first && j < s.last) {
      float largest = 0.0f;
      for (int64_t r = s.offset; r < s.m; ++r)
        largest = std::fmax(largest, std::fabs(updated[(b * s.m + r) * s.n + j]));
      expected = jaxqr::scale_of_largest(largest, s.m);
    }
    if (std::memcmp(&expected, &scales[i], sizeof(float)) != 0) return false;
  }
  return true;
}

// `hard`: of make_hard. What is known of C is poison in memory.
void check_update(const BlockReflectorShape& s, bool in_place, bool make_scales, bool transpose, bool hard = false) {
  const int64_t size = s.m * s.n, bad_column = hard ? (s.first + s.last) / 2 : -1;
  std::vector<float> h = random_floats(s.batch * size, 2), a = random_floats(s.batch * size, 3);
  if (hard) make_hard(in_place ? &h : &a, s, s.offset + (s.m - s.offset) / 2, bad_column);
  const TestBlock block(&h, s.batch, s.m, s.n, s.offset, s.width);
  std::vector<float> given(h);
  for (int64_t i = 0; i < s.batch * size; ++i) {
    const int64_t row = i / s.n % s.m - s.offset, column = i % s.n - s.first;
    if (row < 0 || column < 0 || column >= s.last - s.first || std::min(row, column) >= s.known) continue;
    h[i] = row == column ? 1.0f : 0.0f;
    given[i] = kPoison;
  }
  const DeviceFloats result(given), with_remade(given), factors(block.t), source(a),
      scales(std::vector<float>(s.batch * s.n, kPoison));
  const DeviceHalves halves(block.halves);
  if (!make_scales) {  // from an earlier update, of columns that were four times as large
    std::vector<float> larger(in_place ? h : a);
    for (float& x : larger) x *= 4;
    const DeviceFloats earlier(larger), unused(larger);
    BlockReflectorShape unknown = s;
    unknown.known = 0;
    REQUIRE(jaxqr::launch_block_reflector(unknown, unused.get(), halves.get(), factors.get(), transpose, scales.get(),
                                          true, false, earlier.get(), nullptr));
  }
  const auto update = [&](const DeviceFloats& h, bool remake_scales) {
    REQUIRE(jaxqr::launch_block_reflector(s, h.get(), halves.get(), factors.get(), transpose, scales.get(), make_scales,
                                          remake_scales, in_place ? h.get() : source.get(), nullptr));
    REQUIRE(cudaDeviceSynchronize());
  };
  update(result, false);
  const std::vector<float> updated = result.host(), made = scales.host();
  update(with_remade, true);
  const std::vector<float> remade = scales.host(), same = with_remade.host();
  const bool right = std::memcmp(same.data(), updated.data(), same.size() * sizeof(float)) == 0 &&
                     are_scales_of(s, updated, made, remade);
  const double worst = worst_error(s, {&block}, transpose, h, in_place ? h : a, updated, bad_column),
               untouched = right ? 0.0 : std::numeric_limits<double>::infinity();
  char what[200];
  std::snprintf(what, sizeof what, "update batch %d, %d×%d, offset %d, width %d, columns %d:%d, %d known%s%s%s",
                int(s.batch), int(s.m), int(s.n), int(s.offset), int(s.width), int(s.first), int(s.last), int(s.known),
                in_place ? ", in place" : "", transpose ? "" : ", T not transposed", hard ? ", hard" : "");
  report(worst < 10 && untouched == 0, what, worst, untouched);
}

// The update by the block reflector of `s` and that of `second_width` columns next to it, in place.
void check_update_by_two(const BlockReflectorShape& s, int64_t second_width, bool make_scales, bool hard) {
  const int64_t size = s.m * s.n, bad_column = hard ? (s.first + s.last) / 2 : -1;
  std::vector<float> h = random_floats(s.batch * size, 2);
  if (hard) make_hard(&h, s, s.offset + (s.m - s.offset) / 2, bad_column);
  const TestBlock first(&h, s.batch, s.m, s.n, s.offset, s.width),
      second(&h, s.batch, s.m, s.n, s.offset + s.width, second_width);
  const DeviceFloats result(h), t1(first.t), t2(second.t), scales(std::vector<float>(s.batch * s.n, kPoison)),
      coupling(s.batch * jaxqr::kCouplingFloats);
  const DeviceHalves v1(first.halves), v2(second.halves);
  if (!make_scales) {  // from an earlier update, of columns that were four times as large
    std::vector<float> larger(h);
    for (float& x : larger) x *= 4;
    const DeviceFloats earlier(larger);
    REQUIRE(jaxqr::launch_block_reflector(s, earlier.get(), v1.get(), t1.get(), true, scales.get(), true, false,
                                          earlier.get(), nullptr));
  }
  BlockReflectorShape of_second = s;
  of_second.offset += s.width;
  of_second.width = second_width;
  const std::vector<float> before = scales.host();
  REQUIRE(jaxqr::launch_coupling(of_second, s.width, result.get(), {t1.get(), t2.get()}, v2.get(), coupling.get(),
                                 nullptr));
  REQUIRE(jaxqr::launch_two_block_reflectors(s, second_width, result.get(), {v1.get(), v2.get()}, {t1.get(), t2.get()},
                                             coupling.get(), scales.get(), make_scales, result.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  const std::vector<float> updated = result.host(), made = scales.host();
  // One after the other, the first makes the scales: orthogonal updates let no column grow past them.
  cudaDeviceProp device;
  REQUIRE(cudaGetDeviceProperties(&device, 0));
  const bool at_once = device.major == 9 && (s.n | of_second.offset | s.first | s.last) % 4 == 0;
  const bool right = !make_scales ? std::memcmp(made.data(), before.data(), made.size() * sizeof(float)) == 0
                                  : !at_once || are_scales_of(s, updated, before, made);
  char what[200];
  std::snprintf(what, sizeof what, "update batch %d, %d×%d, offset %d, widths %d and %d, columns %d:%d%s%s",
                int(s.batch), int(s.m), int(s.n), int(s.offset), int(s.width), int(second_width), int(s.first),
                int(s.last), make_scales ? ", scales made" : "", hard ? ", hard" : "");
  const double worst = worst_error(s, {&first, &second}, true, h, h, updated, bad_column);
  report(worst < 10 && right, what, worst, right ? 0.0 : std::numeric_limits<double>::infinity());
}

// `hard`: columns of very different size, zeros in the first chunk of one, and a NaN in one of the first matrix.
void check_tall_update(const jaxqr::TallUpdateShape& s, bool in_place, bool hard) {
  const int64_t size = s.m * s.n, w = s.width, rows = s.rows(), first = s.offset + w;
  std::vector<float> h = random_floats(s.batch * size, 6), a = random_floats(s.batch * size, 7), tau(s.batch * w);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t k = 0; k < w; ++k) {
      double square = 1.0;
      for (int64_t r = 0; r < rows; ++r) {
        float& x = h[b * size + (s.offset + r) * s.n + s.offset + k];
        x = r <= k ? kPoison : x / std::sqrt(static_cast<float>(rows));
        if (r > k) square += double{x} * x;
      }
      tau[b * w + k] = static_cast<float>(2.0 / square);
    }
  }
  std::vector<float>& c = in_place ? h : a;
  const int64_t bad_column = hard ? (first + s.n) / 2 : -1;
  if (hard) {
    for (int64_t row = 0; row < s.batch * s.m; ++row)
      for (int64_t j = first; j < s.n; ++j) c[row * s.n + j] *= j % 3 == 0 ? 0x1p-110f : j % 3 == 1 ? 1 : 0x1p110f;
    for (int64_t r = 0; r < std::min(rows, jaxqr::kTallChunkRows); ++r) c[(s.offset + r) * s.n + first] = 0.0f;
    c[(s.offset + rows / 2) * s.n + bad_column] = kPoison;
  }
  const DeviceFloats result(h), source(a), taus(tau), workspace(std::vector<float>(s.batch * s.workspace(), kPoison));
  REQUIRE(jaxqr::launch_tall_update(s, result.get(), taus.get(), workspace.get(),
                                    in_place ? result.get() : source.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  const std::vector<float> updated = result.host();
  double worst = 0.0, untouched = 0.0;
  for (int64_t b : {int64_t{0}, s.batch - 1}) {
    const float* const panel = &h[b * size + s.offset * s.n + s.offset];
    for (int64_t j = first; j < s.n; ++j) {
      std::vector<double> column(rows);
      double norm = 0.0, error = 0.0;
      for (int64_t r = 0; r < rows; ++r) column[r] = c[b * size + (s.offset + r) * s.n + j];
      for (double x : column) norm += x * x;
      for (int64_t k = 0; k < w; ++k) {
        double dot = 0.0;
        for (int64_t r = k; r < rows; ++r) dot += reflector(panel, s.n, r, k) * column[r];
        for (int64_t r = k; r < rows; ++r) column[r] -= tau[b * w + k] * dot * reflector(panel, s.n, r, k);
      }
      for (int64_t r = 0; r < rows; ++r) error += std::pow(updated[b * size + (s.offset + r) * s.n + j] - column[r], 2);
      const double relative = norm > 0 ? std::sqrt(error / norm) / std::numeric_limits<float>::epsilon() : error;
      if (b == 0 && j == bad_column) continue;
      worst = std::isnan(relative) ? relative : std::max(worst, relative);
    }
    for (int64_t i = 0; i < size; ++i) {
      if (i / s.n >= s.offset && i % s.n >= first) continue;
      if (std::memcmp(&h[b * size + i], &updated[b * size + i], sizeof(float)) != 0)
        untouched = std::numeric_limits<double>::infinity();
    }
  }
  char what[200];
  std::snprintf(what, sizeof what, "tall update batch %d, %d×%d, offset %d, width %d%s%s", int(s.batch), int(s.m),
                int(s.n), int(s.offset), int(w), in_place ? ", in place" : "", hard ? ", hard" : "");
  report(worst < 10 && untouched == 0, what, worst, untouched);
}

// Random reflections in the columns of matrices, those on and above the diagonal poisoned.
void reflections(int64_t batch, int64_t m, int64_t n, int64_t k, std::vector<float>* h, std::vector<float>* tau) {
  *h = random_floats(batch * m * n, 4);
  tau->resize(batch * k);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < k; ++c) {
      double square = 1.0;
      for (int64_t r = 0; r < m; ++r) {
        float& x = (*h)[(b * m + r) * n + c];
        x = r <= c ? kPoison : x * 0.3f;
        if (r > c) square += double{x} * x;
      }
      (*tau)[b * k + c] = static_cast<float>(2.0 / square);
    }
  }
}

// `large`: one column's entries reach far beyond the range of halves.
void check_reflectors(int64_t m, int64_t n, int64_t offset, const std::vector<int64_t>& widths, bool large,
                      int64_t batch = 3) {
  const int64_t k = std::min(m, n);
  std::vector<float> h, tau;
  reflections(batch, m, n, k, &h, &tau);
  if (large && offset + 1 < m) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t r = offset + 1; r < m; ++r) h[(b * m + r) * n + offset] *= 0x1p20f;
      tau[b * k + offset] = 1.5f * 0x1p-40f;
    }
  }
  const DeviceFloats source(h), taus(tau);
  const Reflectors found = room_for_reflectors(batch, m, offset, widths);
  REQUIRE(jaxqr::launch_reflectors({batch, m, n, 0, k}, found.blocks, source.get(), taus.get(), nullptr));
  REQUIRE(cudaDeviceSynchronize());
  double v_error = 0.0, t_error = 0.0;
  for (size_t i = 0; i < widths.size(); ++i) {
    const int64_t first = found.blocks[i].offset, w = widths[i], rows = m - first, pitch = jaxqr::reflector_pitch(w);
    const std::vector<float> ts = found.t[i].host();
    const std::vector<__half> parts = found.halves[i].host();
    for (int64_t b = 0; b < batch; ++b) {
      const float* const panel = &h[b * m * n + first * n + first];
      const __half* const halves = &parts[b * rows * 2 * pitch];
      const auto element = [&](int64_t row, int64_t c) {
        const __half* const place = halves + row * 2 * pitch + c;
        return (double{__half2float(place[0])} + __half2float(place[pitch])) / jaxqr::kReflectorScale;
      };
      const auto worse = [](double* worst, double error) {
        *worst = std::isnan(error) ? error : std::max(*worst, error / std::numeric_limits<float>::epsilon());
      };
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < pitch; ++c) {
          const double expected = c < w ? element(c, c) * reflector(panel, n, row, c) : 0.0;
          worse(&v_error, std::fabs(element(row, c) - expected));
        }
      }
      const std::vector<double> reference = reference_t(panel, n, &tau[b * k + first], rows, w);
      const auto expected = [&](int64_t i) { return reference[i] / (element(i / w, i / w) * element(i % w, i % w)); };
      double largest = std::numeric_limits<float>::min();
      for (int64_t i = 0; i < w * w; ++i) largest = std::max(largest, std::fabs(expected(i)));
      for (int64_t i = 0; i < w * w; ++i) worse(&t_error, std::fabs(ts[b * w * w + i] - expected(i)) / largest);
    }
  }
  char what[200];
  std::snprintf(what, sizeof what, "reflectors batch %d, %d×%d, offset %d, %d blocks of width %d%s", int(batch), int(m),
                int(n), int(offset), int(widths.size()), int(widths[0]), large ? ", large" : "");
  report(v_error <= 1.0 && t_error < 300, what, v_error, t_error);
}

}  // namespace

int check(const std::string& part) {
  int checks = 0;
  const int64_t shared_limit = shared_bytes_limit();
  const auto wanted = [&](std::string_view name) { return part.empty() || part == name; };
  const auto check_if_possible = [&](const Kernel& kernel, const PanelShape& shape, bool has_t, bool in_place) {
    const PanelKernel of_shape = jaxqr::panel_kernel(kernel.name, shape, has_t);
    if (of_shape.mismatch != nullptr || of_shape.shared_bytes > shared_limit) return;
    check_panel(kernel.name, shape, has_t, in_place);
    ++checks;
  };
  for (const Kernel& kernel : compiled_kernels()) {
    if (!wanted(kernel.name.regime)) continue;
    const int64_t widest = std::min(kernel.rows, kernel.columns);
    for (int64_t rows : {kernel.rows, kernel.rows - 1, kernel.rows / 2 + 3, int64_t{5}, int64_t{1}}) {
      for (int64_t width : {widest, widest - 3, widest / 2, int64_t{17}, int64_t{1}}) {
        const int64_t w = std::max<int64_t>(1, std::min(width, rows));
        if (w < kernel.fewest) continue;
        for (bool has_t : {false, true}) {
          check_if_possible(kernel, {3, rows, w, 0, w}, has_t, false);
          check_if_possible(kernel, {2, rows + 6, w + 9, 6, w}, has_t, true);
        }
      }
      for (int64_t columns :
           {kernel.columns, kernel.columns + 1, 5 * kernel.columns + 3, 8 * kernel.columns, int64_t{64}}) {
        if (!jaxqr::factors_all_columns(kernel.name.regime) || columns <= rows) continue;
        check_if_possible(kernel, {11, rows, columns, 0, rows}, false, false);
        if (kernel.name.regime == "tiny") check_if_possible(kernel, {11, rows, columns, 0, rows}, false, true);
      }
    }
  }
  if (wanted("update")) {
    for (int64_t rows : {1, 40, 64, 200, 513}) {
      for (int64_t width : {1, 17, 32, 33, 64}) {
        if (width > rows) continue;
        for (int64_t columns : {1, 30, 64, 131}) {
          for (bool transpose : {false, true}) {
            const int64_t n = width + columns;
            check_update({2, rows, n, 0, width, width, n}, false, true, transpose);
            check_update({2, rows + 8, n + 8, 8, width, 8 + width, n + 8}, true, false, transpose);
            check_update({2, rows + 3, n + 8, 3, width, 3 + width + columns / 2, 3 + n}, true, true, transpose);
            checks += 3;
          }
        }
      }
    }
    // On an H200, clusters of all sizes share the rows of a strip, and some shapes have none: their strips are many, or
    // their columns do not come in whole quads.
    for (bool transpose : {false, true}) {
      const BlockReflectorShape shapes[] = {
          {136, 60, 190, 0, 17, 18, 190}, {68, 260, 200, 0, 32, 32, 200}, {22, 1100, 88, 0, 8, 8, 88},
          {2, 512, 200, 0, 64, 64, 200},  {2, 600, 160, 10, 62, 72, 160}, {2, 2050, 140, 0, 64, 64, 140},
          {2, 4096, 100, 0, 32, 32, 100}, {2, 4100, 132, 0, 64, 64, 132}, {2, 4099, 100, 2, 17, 20, 100},
          {2, 4101, 90, 0, 40, 40, 90},   {136, 516, 32, 0, 16, 16, 32},  {2, 300, 131, 0, 64, 64, 131},
          {2, 700, 99, 3, 20, 23, 99},    {70, 2080, 24, 0, 8, 8, 24},    {40, 4160, 16, 0, 8, 8, 16},
          {34, 513, 148, 0, 20, 20, 148},
      };
      for (const BlockReflectorShape& shape : shapes) {
        check_update(shape, true, true, transpose);
        check_update(shape, false, false, transpose);
        check_update(shape, transpose, !transpose, transpose, true);
        checks += 3;
        for (int64_t known : {int64_t{4}, int64_t{7}, shape.width, int64_t{64}, shape.last - shape.first}) {
          BlockReflectorShape of_identity = shape;
          of_identity.known = known;
          check_update(of_identity, true, !transpose, transpose);
          ++checks;
        }
      }
    }
    // By two at once: strip after strip, clusters of two and of four, more tiles than are summed at once, rows and
    // columns that do not fill tiles, and shapes for which the two go one after the other.
    const std::pair<BlockReflectorShape, int64_t> pairs[] = {
        {{150, 200, 320, 0, 64, 128, 320}, 64}, {{70, 260, 250 + 6, 4, 56, 100, 240}, 40},
        {{9, 1100, 512, 64, 64, 192, 512}, 64}, {{2, 1030, 260, 0, 64, 128, 260}, 64},
        {{1, 2100, 200, 8, 60, 120, 200}, 52},  {{2, 130, 200, 0, 64, 128, 196}, 64},
        {{3, 128, 192, 0, 64, 128, 192}, 64},   {{2, 300, 201, 0, 64, 128, 201}, 64},
        {{300, 70, 140, 0, 36, 72, 140}, 34},   {{40, 500, 456, 0, 33, 68, 456}, 35},
    };
    for (const auto& [shape, second_width] : pairs) {
      for (bool hard : {false, true}) {
        check_update_by_two(shape, second_width, true, hard);
        check_update_by_two(shape, second_width, false, hard);
        checks += 2;
      }
    }
  }
  if (wanted("reflectors")) {
    for (bool large : {false, true}) {
      for (int64_t rows : {1, 55, 56, 57, 200, 513, 1500}) {
        for (int64_t width : {1, 8, 17, 32, 33, 64}) {
          if (width > rows) continue;
          check_reflectors(rows, width, 0, {width}, large);
          check_reflectors(rows + 5, width + 9, 5, {width}, large);
          checks += 2;
        }
      }
      // On an H200, by clusters of all sizes, and where there are most matrices by none.
      for (int64_t width : {9, 32, 33, 64}) {
        check_reflectors(4300, 72, 3, {width}, large, 1);
        check_reflectors(1090, 64, 0, {width}, large, 20);
        check_reflectors(1090, 71, 1, {width}, large, 60);
        check_reflectors(450, 64, 0, {width}, large, 300);
        checks += 4;
      }
      check_reflectors(300, 290, 7, {64, 64, 64, 64, 20}, large);
      check_reflectors(150, 140, 1, std::vector<int64_t>(130, 1), large);
      checks += 2;
    }
  }
  if (wanted("tall")) {
    const auto check_tall_if_possible = [&](const jaxqr::PanelVariant& variant, const jaxqr::LeavesShape& shape,
                                            bool in_place) {
      if (jaxqr::panel_variant_mismatch(variant, shape) || jaxqr::lift_shared_bytes(shape) > shared_limit) return;
      check_tall(shape, variant, in_place);
      ++checks;
    };
    const auto check_leaves = [&](const jaxqr::PanelVariant& variant, int64_t max_warps) {
      const int64_t rows = 32 * variant.rows_per_lane,
                    widest = std::min<int64_t>(64, variant.cols_per_warp * max_warps);
      for (int64_t width : {widest, widest - 5, widest / 4, int64_t{1}}) {
        const int64_t units = rows / width;
        for (int64_t leaves : {1, 2, 5}) {
          for (int64_t below : {leaves * units * width, leaves * units * width - 1, leaves * (units / 2) * width + 1}) {
            check_tall_if_possible(variant, {2, width + below, width, 0, width, leaves}, false);
            check_tall_if_possible(variant, {2, width + below + 3, width + 6, 3, width, leaves}, true);
          }
        }
      }
    };
#define JAXQR_CHECK_LEAVES(cols_per_warp, rows_per_lane, max_warps) \
  check_leaves({cols_per_warp, rows_per_lane}, max_warps);
    JAXQR_PANEL_VARIANTS(JAXQR_CHECK_LEAVES)
#undef JAXQR_CHECK_LEAVES
    for (int64_t rows : {64, 255, 256, 257, 1500, 5000}) {
      for (int64_t width : {1, 20, 32, 33, 64}) {
        for (int64_t columns : {1, 31, 32, 33, 64, 100}) {
          for (bool hard : {false, true}) {
            check_tall_update({2, rows, width + columns, 0, width}, false, hard);
            check_tall_update({3, rows + 5, width + columns + 5, 5, width}, true, hard);
            check_tall_update({1, rows + 8, width + columns + 8, 8, width}, true, hard);
            checks += 3;
          }
        }
      }
    }
  }
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures != 0;
}

int templates(int64_t part, int64_t parts) {
  const int64_t shared_limit = shared_bytes_limit();
  std::vector<std::function<void()>> checks;
  for (const BlockReflectorShape& shape :
       {BlockReflectorShape{70, 200, 320, 4, 56, 100, 320}, BlockReflectorShape{2, 1100, 236, 4, 56, 100, 236}}) {
    checks.push_back([=] { check_update_by_two(shape, 40, true, false); });
    checks.push_back([=] { check_update_by_two(shape, 40, false, true); });
  }
  for (const Kernel& kernel : compiled_kernels()) {
    const int64_t width = std::min(kernel.rows, kernel.columns), batch = kernel.name.regime == "cluster" ? 1 : 3,
                  with_t = std::min(width, jaxqr::kMaxReflectorsWidth);
    if (kernel.name.regime == "wide") {
      checks.push_back([=] { check_panel(kernel.name, {batch, width, 5 * width + 3, 0, width}, false, false); });
      continue;
    }
    const std::pair<PanelShape, bool> cases[] = {
        {{batch, kernel.rows + 6, with_t + 9, 6, with_t}, true},
        {{batch, kernel.rows + 6, width + 9, 6, width}, false},
        {{batch, kernel.rows, width, 0, width}, false},
    };
    for (const auto& [shape, has_t] : cases) {
      const PanelKernel found = jaxqr::panel_kernel(kernel.name, shape, has_t);
      if (found.mismatch != nullptr || found.shared_bytes > shared_limit) continue;
      checks.push_back([=, shape = shape, has_t = has_t] { check_panel(kernel.name, shape, has_t, true); });
      if (!has_t || width == with_t) break;
    }
  }
  // Widths of 32 and of 64 columns; aligned ones by one thread block a strip and by clusters, and others.
  for (int64_t width : {24, 56}) {
    for (const BlockReflectorShape& shape : {BlockReflectorShape{150, 200, 140, 4, width, 4 + width, 140},
                                             BlockReflectorShape{2, 900, 196, 4, width, 4 + width, 196},
                                             BlockReflectorShape{150, 200, 131, 3, width, 3 + width, 131},
                                             BlockReflectorShape{2, 200, 131, 3, width, 3 + width, 131}}) {
      checks.push_back([=] { check_update(shape, true, true, false); });
      checks.push_back([=] { check_update(shape, true, false, true); });
      BlockReflectorShape of_identity = shape;
      of_identity.known = width;
      checks.push_back([=] { check_update(of_identity, true, false, false); });
    }
    checks.push_back([=] { check_reflectors(700, width + 9, 5, {width}, false); });
    checks.push_back([=] { check_reflectors(700, 3 * width, 0, {width, width, 7}, true); });
    checks.push_back([=] { check_tall_update({2, 600, width + 40, 0, width}, false, false); });
    checks.push_back([=] { check_tall_update({2, 603, width + 43, 3, width}, true, true); });
  }
  checks.push_back([=] { check_reflectors(300, 8, 0, {8}, false); });
#define JAXQR_LEAVES(cols_per_warp, rows_per_lane, max_warps)                                                \
  {                                                                                                          \
    const int64_t rows = 32 * (rows_per_lane), width = std::min<int64_t>(32, (cols_per_warp) * (max_warps)); \
    const jaxqr::LeavesShape shape{2, 3 + width + 2 * (rows / width) * width, width + 6, 3, width, 2};       \
    const jaxqr::PanelVariant variant{cols_per_warp, rows_per_lane};                                         \
    if (!jaxqr::panel_variant_mismatch(variant, shape) && jaxqr::lift_shared_bytes(shape) <= shared_limit)   \
      checks.push_back([=] { check_tall(shape, variant, true); });                                           \
  }
  JAXQR_PANEL_VARIANTS(JAXQR_LEAVES)
#undef JAXQR_LEAVES
  int64_t run = 0;
  for (int64_t i = part; i < static_cast<int64_t>(checks.size()); i += parts, ++run) checks[i]();
  std::printf("%d templates, %d failed\n", int(run), failures);
  return failures != 0;
}

}  // namespace driver
