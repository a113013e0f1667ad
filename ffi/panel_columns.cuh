// Columns of a panel in the registers of a warp, for the CTA regime: reflectors are applied to them, and made of them.
//
// Lane l holds, of each of kCols columns, the rows l + 32·r, r < kRows. The pivots of a warp have one r, a constant in
// the code (of which there are as many copies as r takes values, and no more: code that runs once waits for
// instructions). A reflector is made from one reduction of raw dot products (LAPACK slarfg, slarf):
//     beta = -sign(alpha)·sqrt(alpha² + Σx²),  v = x/(alpha - beta),  c ← c - tau·(c_k + Σv·c)·v.
//
// Range. Every column is multiplied at load by its own exact power of two (maximum in [1, 2)) and R's part divided by
// it at store; reflectors and tau do not feel it. Orthogonal updates never let a column grow, so no square overflows.
// Where Σx² < 2^-80 (a tail that is tiny against its own column) the warp repeats the sums with x times another exact
// power of two. An exactly zero tail gives tau = 0 and keeps alpha. Where Σx² is not finite, alpha counts as NaN: the
// column below its pivot and all later ones become NaN, rows above a pivot are never touched.
#ifndef JAXQR_FFI_PANEL_COLUMNS_CUH_
#define JAXQR_FFI_PANEL_COLUMNS_CUH_

#include <cstdint>
#include <type_traits>

#include "ptx.cuh"
#include "reflector.cuh"
#include "warp.cuh"

namespace jaxqr {

template <int kCols, int kRows>
struct PanelColumns {
  static constexpr int kItems = kRows / 4, kHeight = 32 * kRows;
  static constexpr int kLanesASum = 32 / kCols;
  static_assert(kRows % 4 == 0, "whole items");

  float a[kCols][kRows];

  // A reflector in shared memory: lane l's rows are the items l, l + 32, …
  static __device__ __forceinline__ void load(float (&v)[kRows], const float* reflector, int lane) {
    const float4* const place = reinterpret_cast<const float4*>(reflector) + lane;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const float4 item = place[32 * i];
      v[4 * i] = item.x;
      v[4 * i + 1] = item.y;
      v[4 * i + 2] = item.z;
      v[4 * i + 3] = item.w;
    }
  }
  static __device__ __forceinline__ void store(const float (&v)[kRows], float* reflector, int lane) {
    float4* const place = reinterpret_cast<float4*>(reflector) + lane;
#pragma unroll
    for (int i = 0; i < kItems; ++i) place[32 * i] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
  }

  // Scales each column, and writes what R's part is times at store.
  __device__ __forceinline__ void scale(float* unscale, int lane) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      float magnitude = 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) magnitude = fmaxf(magnitude, fabsf(a[c][r]));
      const float scale = power_of_two_scale(group_max<32>(magnitude));
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[c][r] *= scale;
      if (lane == c) unscale[c] = reciprocal_of_scale(scale);
    }
  }

  // The lane's parts of the sums of x·c.
  __device__ __forceinline__ void sums_of_lane(float (&sums)[kCols], const float (&x)[kRows]) const {
    constexpr int kChains = kRows <= 8 ? 1 : kRows <= 16 ? 2 : 4;  // of at most eight products
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      float chains[kChains];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        chains[r % kChains] = r < kChains ? x[r] * a[c][r] : fmaf(x[r], a[c][r], chains[r % kChains]);
      if constexpr (kChains == 4)
        sums[c] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
      else
        sums[c] = kChains == 2 ? chains[0] + chains[kChains - 1] : chains[0];
    }
  }
  // The sums over all rows: lane l returns that of column l / kLanesASum.
  __device__ __forceinline__ float dot_products(const float (&x)[kRows], int lane) const {
    float sums[kCols];
    sums_of_lane(sums, x);
    return transposed_sum(sums, lane);
  }

  // Reflector k, of a column before these. Pivots are in the first kPivotRows registers of their columns.
  template <int kPivotRows>
  __device__ __forceinline__ void apply(const float (&v)[kRows], float tau, int k, int lane) {
    const float own_coefficient = tau * dot_products(v, lane);
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const float coefficient = __shfl_sync(kFullWarp, own_coefficient, kLanesASum * c);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // Not a zero factor: finished rows must not see Inf or NaN.
        if (r >= kPivotRows || lane + 32 * r >= k) a[c][r] = fmaf(-coefficient, v[r], a[c][r]);
      }
    }
  }

  // Reflectors first … of these columns, which become H's. `publish(k, v, tau)` gets each as soon as it is made, with
  // its 1 and the zeros above; and `couple(k, c, product)`, unless it is nullptr, its product with that of column c
  // before it.
  template <int kPivotRows, typename Publish, typename Couple>
  __device__ __forceinline__ void factor(int first, int lane, const Publish& publish, const Couple& couple) {
    static_assert(kPivotRows <= 4 && kPivotRows <= kRows, "a copy for each register with pivots");
    if (kPivotRows == 1 || first < 32)
      factor_at<0>(first, lane, publish, couple);
    else if (kPivotRows == 2 || first < 64)
      factor_at<(kPivotRows < 2 ? 0 : 1)>(first, lane, publish, couple);
    else if (first < 96)
      factor_at<(kPivotRows < 3 ? 0 : 2)>(first, lane, publish, couple);
    else
      factor_at<(kPivotRows < 4 ? 0 : 3)>(first, lane, publish, couple);
  }

  // Row lane + 32·r of H, which is `distance` rows above the first column's pivot.
  __device__ __forceinline__ float4 row_of_h(int r, int distance, const float4& unscale) const {
    static_assert(kCols == 4, "words of four columns");
    return {distance >= 0 ? a[0][r] * unscale.x : a[0][r], distance >= -1 ? a[1][r] * unscale.y : a[1][r],
            distance >= -2 ? a[2][r] * unscale.z : a[2][r], distance >= -3 ? a[3][r] * unscale.w : a[3][r]};
  }

 private:
  // The pivots are in row lane + 32·p.
  template <int p, typename Publish, typename Couple>
  __device__ __forceinline__ void factor_at(int first, int lane, const Publish& publish, const Couple& couple) {
    constexpr float kLargest = 0x1.fffffep127f;
    const int first_lane = first - 32 * p;
#pragma unroll
    for (int j = 0; j < kCols; ++j) {  // of zeros, from the panel's width on
      const int k = first + j, pivot_lane = first_lane + j;
      const bool below = lane > pivot_lane, at_pivot = lane == pivot_lane;  // where r is p
      float x[kRows], pivot[kCols];
#pragma unroll
      for (int r = 0; r < kRows; ++r) x[r] = r > p || (r == p && below) ? a[j][r] : 0.0f;
#pragma unroll
      for (int c = 0; c < kCols; ++c) pivot[c] = __shfl_sync(kFullWarp, a[c][p], pivot_lane);
      float alpha = pivot[j], own_sum = dot_products(x, lane),
            sum_of_squares = __shfl_sync(kFullWarp, own_sum, kLanesASum * j);
      float rescale = 1.0f;
      bool zero_tail = false;
      if (!(sum_of_squares >= 0x1p-80f && sum_of_squares <= kLargest)) {
        float magnitude = 0.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) magnitude = fmaxf(magnitude, fabsf(x[r]));
        const bool finite = sum_of_squares <= kLargest;
        zero_tail = finite && !__any_sync(kFullWarp, magnitude > 0.0f);
        if (!zero_tail) {
          if (finite) rescale = power_of_two_scale(fmaxf(group_max<32>(magnitude), fabsf(alpha)));
          if (!finite) alpha = __int_as_float(0x7fc00000);
          float square[1] = {};  // of x itself: the column's registers stay as they are
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            x[r] = finite ? x[r] * rescale : 0.0f;
            square[0] = fmaf(x[r], x[r], square[0]);
          }
          group_sum<32>(square);
          sum_of_squares = square[0];
          own_sum = dot_products(x, lane);
        }
      }
      Reflector reflector = make_reflector(alpha * rescale, sum_of_squares);
      reflector.beta *= reciprocal_of_scale(rescale);
      if (zero_tail) reflector = {alpha, 0.0f, 0.0f, 0.0f};

      float v[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        v[r] = x[r] * reflector.inverse;
        if (r == p) v[r] = below ? v[r] : at_pivot ? 1.0f : 0.0f;
        if (r < p) v[r] = 0.0f;
      }
      publish(k, v, reflector.tau);

      const auto projection_of = [&](int c) {
        return fmaf(reflector.inverse, __shfl_sync(kFullWarp, own_sum, kLanesASum * c), pivot[c]);
      };
#pragma unroll
      for (int c = j + 1; c < kCols; ++c) {
        const float projection = projection_of(c), coefficient = reflector.neg_inverse_beta * projection;
#pragma unroll
        for (int r = p; r < kRows; ++r) {
          if (r > p || below) a[c][r] = fmaf(-coefficient, x[r], a[c][r]);
        }
        if (at_pivot) a[c][p] = fmaf(-reflector.tau, projection, pivot[c]);
      }
#pragma unroll
      for (int r = p; r < kRows; ++r) {
        if (r > p || below) a[j][r] = v[r];
      }
      if (at_pivot) a[j][p] = reflector.beta;
      if constexpr (!std::is_null_pointer_v<Couple>) {
#pragma unroll
        for (int c = 0; c < j; ++c) couple(k, first + c, projection_of(c));
      }
    }
  }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_COLUMNS_CUH_
