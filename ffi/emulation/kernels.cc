// The kernels of the tiny and wide regimes on the CPU, as functions for tests/test_emulated_kernels.py.
#include <algorithm>
#include <cstdint>

#include "cuda_on_cpu.h"
// After it:
#include "../tiny_kernel.cuh"
#include "../tiny_variants.h"
#include "../wide_variants.h"

namespace {

// Of `count` matrices or chunks, of which a block has `of_a_block`.
template <typename Kernel>
void run(int64_t count, int64_t of_a_block, int warps, const Kernel& kernel) {
  for (int64_t first = 0, index = 0; first < count; first += of_a_block, ++index)
    emulation::run_block(static_cast<unsigned>(index), 32 * warps, kernel);
}

template <int kColumnLanes, int kCols, int kRowLanes, int kWarps, int kRows>
void tiny(const float* src, float* h, float* tau, int64_t batch, int m, int n) {
  constexpr int kCtaWarps = jaxqr::kTinyWarps<kCols, kWarps, kRows>;
  run(batch, 32 / (kColumnLanes * kRowLanes) * kCtaWarps / kWarps, kCtaWarps,
      [&] { jaxqr::tiny_kernel<kColumnLanes, kCols, kRowLanes, kWarps, kRows>(src, h, tau, batch, m, n); });
}

template <int kRows, int kCols>
void wide(const float* src, float* h, float* tau, int64_t batch, int m, int n) {
  constexpr int kCtaWarps = jaxqr::kTinyWarps<kCols, 1, kRows>, kColumns = kRows * (kCols - 1);
  const int chunks = std::max(1, (n - kRows + kColumns - 1) / kColumns);
  run(batch * chunks, 32 / kRows * kCtaWarps, kCtaWarps,
      [&] { jaxqr::wide_kernel<kRows, kCols>(src, h, tau, batch * chunks, m, n, chunks); });
}

}  // namespace

// Factors as launch_tiny and launch_wide do. Returns whether there is such a variant.
extern "C" bool emulate(const int64_t* variant, int numbers, const float* src, float* h, float* tau, int64_t batch,
                        int m, int n) {
  const auto is = [&](std::initializer_list<int64_t> wanted) {
    return std::equal(wanted.begin(), wanted.end(), variant, variant + numbers);
  };
#define JAXQR_TINY(...) \
  if (is({__VA_ARGS__})) return tiny<__VA_ARGS__>(src, h, tau, batch, m, n), true;
#define JAXQR_WIDE(...) \
  if (is({__VA_ARGS__})) return wide<__VA_ARGS__>(src, h, tau, batch, m, n), true;
  JAXQR_TINY_VARIANTS(JAXQR_TINY)
  JAXQR_WIDE_VARIANTS(JAXQR_WIDE)
#undef JAXQR_TINY
#undef JAXQR_WIDE
  return false;
}
