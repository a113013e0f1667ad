// Compiles the wide-regime kernel's variants and launches them by name of their parameters.
#include <algorithm>
#include <type_traits>

#include "panel.h"
#include "tiny_kernel.cuh"
#include "wide.h"
#include "wide_apply_kernel.cuh"
#include "wide_variants.h"

namespace jaxqr {
namespace {

// The kernels count the chunks of a launch, and columns, in 32 bits.
constexpr int64_t kMaxChunks = 0x7fffffff, kMaxColumns = 1 << 30;

// Of the first columns of matrices with more rows than kMaxWideLanes.
constexpr PanelVariant kWidePanel{4, 4};

// Of chunks of so many columns, from column `first` on, of which every matrix has one at least.
int64_t chunks_of(const TinyShape& shape, int64_t first, int64_t columns) {
  return std::max<int64_t>(1, (shape.n - first + columns - 1) / columns);
}

template <int kRows, int kCols>
cudaError_t launch(const TinyShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  constexpr bool kApplies = kRows > kMaxWideLanes;
  constexpr int kWarps = kApplies ? kWideApplyWarps : kTinyWarps<kCols, 1, kRows>;
  constexpr int kOfACta = kApplies ? 1 : 32 / kRows * kWarps;  // chunks
  const int64_t size = shape.m * shape.n, chunks = kApplies ? chunks_of(shape, shape.m, kWideApplyColumns<kCols>)
                                                            : chunks_of(shape, kRows, kRows * (kCols - 1));
  if constexpr (kApplies) {
    const cudaError_t error =
        launch_panel(kWidePanel, {shape.batch, shape.m, shape.n, 0, shape.m}, src, h, tau, nullptr, nullptr, stream);
    if (error != cudaSuccess) return error;
  }
  const int m = static_cast<int>(shape.m), n = static_cast<int>(shape.n);
  for (int64_t first = 0, most = kMaxChunks / chunks; first < shape.batch; first += most) {
    const int64_t count = std::min(shape.batch - first, most) * chunks;
    const unsigned ctas = static_cast<unsigned>((count + kOfACta - 1) / kOfACta);
    const float* const source = src + first * size;
    float *const target = h + first * size, *const taus = tau + first * shape.m;
    if constexpr (kApplies) {
      wide_apply_kernel<kRows, kCols>
          <<<ctas, 32 * kWarps, 0, stream>>>(source, target, taus, m, n, static_cast<int>(chunks));
    } else {
      wide_kernel<kRows, kCols>
          <<<ctas, 32 * kWarps, 0, stream>>>(source, target, taus, count, m, n, static_cast<int>(chunks));
    }
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Calls `use` with the variant's numbers as constants, or returns `otherwise`.
template <typename Use, typename Result>
Result with_variant(const WideVariant& variant, Result otherwise, const Use& use) {
#define JAXQR_USE(row_count, col_count)                                    \
  if (variant.rows == (row_count) && variant.cols_per_lane == (col_count)) \
    return use(std::integral_constant<int, row_count>(), std::integral_constant<int, col_count>());
  JAXQR_WIDE_VARIANTS(JAXQR_USE)
#undef JAXQR_USE
  return otherwise;
}

}  // namespace

const char* wide_variant_mismatch(const WideVariant& variant, const TinyShape& shape) {
  return with_variant(variant, "no such variant was compiled", [&](auto rows, auto) -> const char* {
    if (shape.m < 1 || shape.m > rows) return "the variant does not hold that many rows";
    if (shape.n < shape.m || shape.n > kMaxColumns) return "the matrices have fewer columns than rows, or too many";
    return nullptr;
  });
}

cudaError_t launch_wide(const WideVariant& variant, const TinyShape& shape, const float* src, float* h, float* tau,
                        cudaStream_t stream) {
  if (src == h) return cudaErrorInvalidValue;
  return with_variant(variant, cudaErrorInvalidValue, [&](auto rows, auto cols_per_lane) {
    return launch<decltype(rows)::value, decltype(cols_per_lane)::value>(shape, src, h, tau, stream);
  });
}

}  // namespace jaxqr
