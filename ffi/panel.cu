// Compiles the CTA-regime panel kernels' variants and launches them by name of their parameters.
#include <algorithm>
#include <type_traits>

#include "panel.h"
#include "panel_kernel.cuh"
#include "panel_turns_kernel.cuh"
#include "panel_variants.h"
#include "reflectors.h"

namespace jaxqr {
namespace {

// The launch of one batch may have at most this many CTAs (gridDim.x).
constexpr int64_t kMaxGrid = 0x7fffffff;

// A variant as a type.
template <int kCols_, int kRows_, int kMaxWarps_>
struct Variant {
  static constexpr int kCols = kCols_, kRows = kRows_, kMaxWarps = kMaxWarps_;
  static constexpr int kReflectorBytes = 4 * 32 * kRows;  // at full height
  static constexpr bool kMayTakeTurns = kCols * kMaxWarps < kMaxTurnsWidth;

  static constexpr bool in_turns(int64_t width) { return width > kCols * kMaxWarps; }
  static constexpr int columns_of(int64_t width) { return static_cast<int>((width + kCols - 1) / kCols * kCols); }
  static constexpr int warps_of(int64_t width) { return std::min(columns_of(width) / kCols, kMaxWarps); }

  // Of a launch; where warps take turns, with as few places for reflectors as they can do with.
  static int shared_bytes(int64_t width, bool has_t) {
    if (in_turns(width)) {
      const int one_turn = kCols * kMaxWarps, places = std::max(one_turn, columns_of(width) - one_turn);
      return static_cast<int>(sizeof(PanelTurnsShared)) + places * kReflectorBytes;
    }
    return static_cast<int>(sizeof(PanelScalars<kCols * kMaxWarps>)) + columns_of(width) * kReflectorBytes +
           (has_t ? 4 * kProductsSide * kProductsSide : 0);
  }
};

// Prepares `kernel` for `shared_bytes`, and launches one thread block for each of a panel's row blocks by parts of the
// batch: launch_part(first matrix, thread blocks, resident thread blocks of the device).
template <typename Kernel, typename LaunchPart>
cudaError_t launch_in_parts(const Kernel& kernel, int64_t batch, const RowSplit& split, int threads, int shared_bytes,
                            const LaunchPart& launch_part) {
  int device, processors, resident;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes);
  const int64_t matrices = kMaxGrid / split.blocks;
  for (int64_t first = 0; error == cudaSuccess && first < batch; first += matrices) {
    launch_part(first, static_cast<unsigned>(std::min(batch - first, matrices) * split.blocks), processors * resident);
    error = cudaGetLastError();
  }
  return error;
}

// From row `first_row` on, the rows of the panel's columns as `split` says.
template <typename V>
cudaError_t launch(const PanelShape& shape, int64_t first_row, const RowSplit& split, const float* src, float* h,
                   float* tau, float* t, __half* halves, cudaStream_t stream) {
  const int width = static_cast<int>(shape.width), threads = 32 * V::warps_of(width);
  const PanelBlocks blocks{shape.m * shape.n, shape.n, split};
  const int64_t corner = first_row * shape.n + shape.offset;
  const auto at = [&](auto* matrices, int64_t first) { return matrices + first * blocks.matrix_stride + corner; };
  if constexpr (V::kMayTakeTurns) {
    if (V::in_turns(width)) {
      int device, most;
      cudaError_t error = cudaGetDevice(&device);
      if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      if (error != cudaSuccess) return error;
      const auto kernel = panel_turns_kernel<V::kCols, V::kRows, V::kMaxWarps>;
      const int scalars = sizeof(PanelTurnsShared),
                places = std::min(V::columns_of(width), (most - scalars) / V::kReflectorBytes),
                shared_bytes = scalars + places * V::kReflectorBytes;
      return launch_in_parts(
          kernel, shape.batch, split, threads, shared_bytes, [&](int64_t first, unsigned grid, int resident) {
            kernel<<<grid, threads, shared_bytes, stream>>>(
                at(src, first), at(h, first), tau + first * split.blocks * width, blocks, width, places, resident);
          });
    }
  }
  const auto kernel = panel_kernel<V::kCols, V::kRows, V::kMaxWarps>;
  const int shared_bytes = V::shared_bytes(width, t != nullptr);
  const int64_t rows = split.rows_of(0);
  return launch_in_parts(
      kernel, shape.batch, split, threads, shared_bytes, [&](int64_t first, unsigned grid, int resident) {
        kernel<<<grid, threads, shared_bytes, stream>>>(
            at(src, first), at(h, first), tau + first * split.blocks * width,
            t == nullptr ? nullptr : t + first * width * width,
            t == nullptr ? nullptr : halves + first * rows * 2 * reflector_pitch(width), blocks, width, resident);
      });
}

// Calls `use` with the Variant of that name, as a value, or returns `otherwise`.
template <typename Use, typename Result>
Result with_variant(const PanelVariant& variant, Result otherwise, const Use& use) {
#define JAXQR_USE(cols, rows, max_warps) \
  if (variant.cols_per_warp == (cols) && variant.rows_per_lane == (rows)) return use(Variant<cols, rows, max_warps>());
  JAXQR_PANEL_VARIANTS(JAXQR_USE)
#undef JAXQR_USE
  return otherwise;
}

const char* mismatch(const PanelVariant& variant, int64_t rows, int64_t width) {
  return with_variant(variant, "no such variant was compiled", [&](auto v) -> const char* {
    using V = decltype(v);
    if (rows > 32 * V::kRows) return "the variant does not hold that many rows";
    if (width > std::max(V::kCols * V::kMaxWarps, kMaxTurnsWidth)) return "the variant does not take that many columns";
    return nullptr;
  });
}

cudaError_t launch_variant(const PanelVariant& variant, const PanelShape& shape, int64_t first_row,
                           const RowSplit& split, const float* src, float* h, float* tau, float* t, __half* halves,
                           cudaStream_t stream) {
  return with_variant(variant, cudaErrorInvalidValue, [&](auto v) {
    return launch<decltype(v)>(shape, first_row, split, src, h, tau, t, halves, stream);
  });
}

}  // namespace

const char* panel_variant_mismatch(const PanelVariant& variant, const PanelShape& shape) {
  return mismatch(variant, shape.m - shape.offset, shape.width);
}

const char* panel_variant_mismatch(const PanelVariant& variant, const LeavesShape& shape) {
  return mismatch(variant, shape.split().highest(), shape.width);
}

int64_t panel_shared_bytes(const PanelVariant& variant, int64_t width, bool has_t) {
  return with_variant(variant, int64_t{0}, [&](auto v) -> int64_t { return decltype(v)::shared_bytes(width, has_t); });
}

bool panel_makes_t(const PanelVariant& variant, int64_t width) {
  return width > kNarrowReflectors &&
         with_variant(variant, false, [&](auto v) { return !decltype(v)::in_turns(width); });
}

cudaError_t launch_panel(const PanelVariant& variant, const PanelShape& shape, const float* src, float* h, float* tau,
                         float* t, __half* halves, cudaStream_t stream) {
  return launch_variant(variant, shape, shape.offset, RowSplit(shape.m - shape.offset, 1, 1), src, h, tau, t, halves,
                        stream);
}

cudaError_t launch_panel_leaves(const PanelVariant& variant, const LeavesShape& shape, const float* src, float* h,
                                float* tau, cudaStream_t stream) {
  const PanelShape panel{shape.batch, shape.m, shape.n, shape.offset, shape.width};
  return launch_variant(variant, panel, shape.offset + shape.width, shape.split(), src, h, tau, nullptr, nullptr,
                        stream);
}

}  // namespace jaxqr
