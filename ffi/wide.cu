// Compiles the wide-regime kernel's variants and launches them by name of their parameters.
#include <algorithm>
#include <type_traits>

#include "tiny_kernel.cuh"
#include "wide.h"
#include "wide_variants.h"

namespace jaxqr {
namespace {

// The kernel counts the chunks of a launch, and columns, in 32 bits.
constexpr int64_t kMaxChunks = 0x7fffffff, kMaxColumns = 1 << 30;

template <int kRows, int kCols>
cudaError_t launch(const TinyShape& shape, const float* src, float* h, float* tau, cudaStream_t stream) {
  constexpr int kWarps = kTinyWarps<kCols, 1, kRows>, kOfACta = 32 / kRows * kWarps, kColumns = kRows * (kCols - 1);
  const int64_t size = shape.m * shape.n;
  const int64_t chunks = std::max<int64_t>(1, (shape.n - kRows + kColumns - 1) / kColumns), most = kMaxChunks / chunks;
  for (int64_t first = 0; first < shape.batch; first += most) {
    const int64_t count = std::min(shape.batch - first, most) * chunks;
    wide_kernel<kRows, kCols><<<static_cast<unsigned>((count + kOfACta - 1) / kOfACta), 32 * kWarps, 0, stream>>>(
        src + first * size, h + first * size, tau + first * shape.m, count, static_cast<int>(shape.m),
        static_cast<int>(shape.n), static_cast<int>(chunks));
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
