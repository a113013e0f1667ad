// The panel kernels of all regimes on the CPU, as one function for tests/test_emulated_kernels.py.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "cuda_on_cpu.h"
// After it:
#include "../cluster_panel_kernel.cuh"
#include "../cluster_variants.h"
#include "../narrow_kernel.cuh"
#include "../narrow_variants.h"
#include "../panel_kernel.cuh"
#include "../panel_turns_kernel.cuh"
#include "../panel_variants.h"
#include "../tiny_kernel.cuh"
#include "../tiny_variants.h"
#include "../wide_apply_kernel.cuh"
#include "../wide_variants.h"

namespace jaxqr {
thread_local __attribute__((aligned(16))) unsigned char shared_memory[227 * 1024];
}

namespace {

// What `h`, `tau`, `t` and `halves` are, and where what is factored lies: as in panel.h.
struct Panel {
  const float* src;
  float *h, *tau, *t;
  void* halves;
  int64_t batch, m, n, offset, width;
};

// In `count` clusters of `ctas` blocks of `warps`.
template <typename Kernel>
void run(int64_t count, int ctas, int warps, int dynamic_bytes, const Kernel& kernel) {
  emulation::dynamic_memory = emulation::memory = dynamic_bytes > 0 ? jaxqr::shared_memory : nullptr;
  for (int64_t i = 0; i < count; ++i) {
    emulation::run_cluster(static_cast<unsigned>(i * ctas), ctas, static_cast<unsigned>(count * ctas), 32 * warps,
                           dynamic_bytes, kernel);
  }
}

int64_t blocks_of(int64_t count, int64_t of_a_block) { return (count + of_a_block - 1) / of_a_block; }

template <int kColumnLanes, int kCols, int kRowLanes, int kWarps, int kRows>
void tiny(const Panel& panel) {
  constexpr int kCtaWarps = jaxqr::kTinyWarps<kCols, kWarps, kRows>;
  run(blocks_of(panel.batch, 32 / (kColumnLanes * kRowLanes) * kCtaWarps / kWarps), 1, kCtaWarps, 0, [&] {
    jaxqr::tiny_kernel<kColumnLanes, kCols, kRowLanes, kWarps, kRows>(
        panel.src, panel.h, panel.tau, panel.batch, static_cast<int>(panel.m), static_cast<int>(panel.n));
  });
}

template <int kCols, int kRows, int kMaxWarps>
void cta(const Panel& panel) {
  const int width = static_cast<int>(panel.width), sets = (width + kCols - 1) / kCols,
            warps = std::min(sets, kMaxWarps);
  const jaxqr::PanelBlocks blocks{panel.m * panel.n, panel.n, jaxqr::RowSplit(panel.m - panel.offset, 1, 1)};
  const int64_t corner = panel.offset * (panel.n + 1);
  run(panel.batch, 1, warps, sizeof jaxqr::shared_memory, [&] {
    if (sets > kMaxWarps) {
      constexpr int kBytes = 4 * 32 * kRows;  // of a reflector
      const int most = static_cast<int>(sizeof jaxqr::shared_memory - sizeof(jaxqr::PanelTurnsShared)) / kBytes;
      jaxqr::panel_turns_kernel<kCols, kRows, kMaxWarps>(panel.src + corner, panel.h + corner, panel.tau, blocks, width,
                                                         std::min(kCols * sets, most), 1);
    } else {
      jaxqr::panel_kernel<kCols, kRows, kMaxWarps>(panel.src + corner, panel.h + corner, panel.tau, panel.t,
                                                   static_cast<__half*>(panel.halves), blocks, width, 1);
    }
  });
}

template <int kCols, int kLanes, int kWarps, int kRows>
void narrow(const Panel& panel) {
  constexpr int kCtaWarps = jaxqr::kNarrowWarps<kWarps>;
  run(blocks_of(panel.batch, 32 * kCtaWarps / (kLanes * kWarps)), 1, kCtaWarps, 0, [&] {
    jaxqr::narrow_kernel<kCols, kLanes, kWarps, kRows>(panel.src, panel.h, panel.tau, panel.batch,
                                                       static_cast<int>(panel.m));
  });
}

template <int kRows, int kCols>
void wide(const Panel& panel) {
  const int m = static_cast<int>(panel.m), n = static_cast<int>(panel.n);
  const auto chunks_of = [&](int first, int columns) { return std::max(1, (n - first + columns - 1) / columns); };
  if constexpr (kRows > jaxqr::kMaxWideLanes) {
    cta<4, 4, 32>(panel);
    const int chunks = chunks_of(m, jaxqr::kWideApplyColumns<kCols>);
    run(panel.batch * chunks, 1, jaxqr::kWideApplyWarps, 0,
        [&] { jaxqr::wide_apply_kernel<kRows, kCols>(panel.src, panel.h, panel.tau, m, n, chunks); });
  } else {
    constexpr int kCtaWarps = jaxqr::kTinyWarps<kCols, 1, kRows>;
    const int chunks = chunks_of(kRows, kRows * (kCols - 1));
    run(blocks_of(panel.batch * chunks, 32 / kRows * kCtaWarps), 1, kCtaWarps, 0,
        [&] { jaxqr::wide_kernel<kRows, kCols>(panel.src, panel.h, panel.tau, panel.batch * chunks, m, n, chunks); });
  }
}

template <int kRowsPerLane, int kCols, int kMaxWarps>
void cluster(const Panel& panel, int ctas) {
  const int width = static_cast<int>(panel.width), rows = static_cast<int>(panel.m - panel.offset);
  const int64_t corner = panel.offset * (panel.n + 1);
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % sizeof(float4) == 0; };
  const bool vectors = aligned(panel.src + corner) && aligned(panel.h + corner) && panel.n % 4 == 0;
  run(panel.batch, ctas, (width + kCols - 1) / kCols,
      jaxqr::cluster_shared_bytes<kCols, kMaxWarps>(kRowsPerLane, width), [&] {
        jaxqr::cluster_panel_kernel<kRowsPerLane, kCols, kMaxWarps>(
            panel.src + corner, panel.h + corner, panel.tau, panel.m * panel.n, panel.n, rows, width, ctas, vectors);
      });
}

}  // namespace

// Factors the panel by the kernel of that regime and variant: T and halves unless they are null. Returns whether there
// is such a kernel.
extern "C" bool emulate(const char* regime, const int64_t* variant, int numbers, const float* src, float* h, float* tau,
                        float* t, void* halves, int64_t batch, int64_t m, int64_t n, int64_t offset, int64_t width) {
  const Panel panel{src, h, tau, t, halves, batch, m, n, offset, width};
  const auto is = [&](std::string_view wanted_regime, std::initializer_list<int64_t> wanted) {
    return wanted_regime == regime && std::equal(wanted.begin(), wanted.end(), variant, variant + numbers);
  };
#define JAXQR_NARROW(...)                                         \
  if (is("narrow", {__VA_ARGS__})) {                              \
    if (panel.n == 1) return narrow<1, __VA_ARGS__>(panel), true; \
    if (panel.n == 2) return narrow<2, __VA_ARGS__>(panel), true; \
    if (panel.n == 3) return narrow<3, __VA_ARGS__>(panel), true; \
    return narrow<4, __VA_ARGS__>(panel), true;                   \
  }
#define JAXQR_TINY(...) \
  if (is("tiny", {__VA_ARGS__})) return tiny<__VA_ARGS__>(panel), true;
#define JAXQR_WIDE(...) \
  if (is("wide", {__VA_ARGS__})) return wide<__VA_ARGS__>(panel), true;
#define JAXQR_CTA(cols_per_warp, rows_per_lane, max_warps) \
  if (is("cta", {cols_per_warp, rows_per_lane})) return cta<cols_per_warp, rows_per_lane, max_warps>(panel), true;
#define JAXQR_CLUSTER(rows_per_lane, cols_per_lane, max_warps)                   \
  if (numbers == 3 && is("cluster", {rows_per_lane, cols_per_lane, variant[2]})) \
    return cluster<rows_per_lane, cols_per_lane, max_warps>(panel, static_cast<int>(variant[2])), true;
  JAXQR_NARROW_VARIANTS(JAXQR_NARROW)
  JAXQR_TINY_VARIANTS(JAXQR_TINY)
  JAXQR_WIDE_VARIANTS(JAXQR_WIDE)
  JAXQR_PANEL_VARIANTS(JAXQR_CTA)
  JAXQR_CLUSTER_VARIANTS(JAXQR_CLUSTER)
#undef JAXQR_NARROW
#undef JAXQR_TINY
#undef JAXQR_WIDE
#undef JAXQR_CTA
#undef JAXQR_CLUSTER
  return false;
}
