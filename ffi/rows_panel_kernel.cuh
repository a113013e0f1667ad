// Rows-regime panel factorization: one CTA factors one panel in registers, its warps sharing the rows. The panel has
// all rows of a matrix or, as a leaf of a tall panel, a block of them.
//
// Ownership. Lane (g, p) = 4·g + p of a warp holds the columns g, g + 8, … (kCols of them), and of these the rows
// part·kRows … part·kRows + kRows-1 of its part = 4·warp + p. A "set" is eight columns, one register index of all
// lanes. For the sums over all rows, lane (g, p) is the one that finishes columns g + 8·p, g + 8·(p + 4), …
//
// A reflector. In every warp the lanes of column k write it to shared memory, all lanes read their part of it (x) and
// sum x·c for their columns c (for c = k that is Σx²). The parts' sums are added by shuffles and, between warps,
// through shared memory; each warp then makes the same bits of the scalars (LAPACK slarfg, slarf):
//     beta = -sign(alpha)·sqrt(alpha² + Σx²),  v = x/(alpha - beta),  c ← c - tau·(c_k + Σv·c)·v.
// The update moves each row up by one register, the first of a part behind its last, so that the pivot is always in
// register 0 and no code depends on k; row k leaves to shared memory when it is final. A set retires after eight
// reflectors, turned by a known multiple of eight rows.
//
// Synchronization. x is exchanged within a warp: two buffers, one __syncwarp a reflector. Sums are exchanged between
// warps likewise: two buffers, one barrier a reflector, as the buffer of reflector k is written again at k+2, past the
// barrier of k+1. All warps pass the same barriers, whatever the data are: what decides on a rescue has the same bits
// in all lanes.
//
// Range. As in the one-CTA kernel, columns are scaled at load, and where Σx² < 2^-80 the column's lanes publish x
// again, scaled. Where Σx² is not finite they publish zeros, and alpha counts as NaN: the column and all later ones
// become NaN, and finished columns, which share registers' rows with them, see only zeros.
//
// T, where wanted: the warps take strips of V's rows (reflectors.cuh) from shared memory, and the sums, their coupling
// and its inverse lie where the rows were. Nothing is rescaled: ‖v‖² = 2/tau ≤ 2, of which the unit is 1, so that
// entries are at most 1 but for roundings, and halves have room for 3.99.
//
// Resources. (kCols + 1)·kRows registers a lane for columns and x, later 20 tiles of sums and a strip; in shared memory
// 8·kCols + 4 floats a row, for the way out, and (kRows + 4)·8 a part.
#ifndef JAXQR_FFI_ROWS_PANEL_KERNEL_CUH_
#define JAXQR_FFI_ROWS_PANEL_KERNEL_CUH_

#include <cuda_fp16.h>

#include <cstdint>

#include "leaves.h"
#include "ptx.cuh"
#include "reflector.cuh"
#include "reflector_halves.h"
#include "reflectors.cuh"
#include "t_factor.cuh"
#include "warp.cuh"

namespace jaxqr {

// Warps an SM, a bound on the registers that the compiler may use.
template <int kCols, int kRows>
inline constexpr int kRowsResidentWarps = (kCols + 1) * kRows <= 96    ? 16
                                          : (kCols + 1) * kRows <= 120 ? 12
                                                                       : 8;

template <int kCols, int kRows, int kWarps>
struct __align__(16) RowsShared {
  static constexpr int kWidth = 8 * kCols;
  static constexpr int kPitch = kWidth + 4;              // of rows, for strips of them
  static constexpr int kPartPitch = kRows * kPitch + 8;  // neighbouring parts lie eight banks further
  // Of a column's sums, so that eight lanes' quads fall into different banks.
  static constexpr int kSumsPitch = kWarps == 8 ? 12 : kWarps;

  float tau[kWidth];
  float h[4 * kWarps * kPartPitch];  // rows of H, as they become final
  float x[kWarps][2][4][kRows + 4];
  float sums[2][kWidth][kSumsPitch];  // columns in the order of the lanes that finish them
  float pivots[2][kWidth];
  float factor[kWidth], rescale[kWidth];  // what a register of a column is times in H, one after the other
  float magnitude[(kWarps + 3) / 4 * 4];

  __device__ __forceinline__ float* row(int index) { return h + index / kRows * kPartPitch + index % kRows * kPitch; }
};

// From RowsShared::h on, once the rows are out.
template <int kWidth, int kWarps>
struct RowsReflectorsShared {
  static constexpr int kQuads = ReflectorStrip<kWidth>::kQuads;

  float coupling[kWidth * kWidth];
  union {
    float4 sums[kWarps][kQuads];
    float scratch[kWidth * kWidth];
  };
};

template <int kCols, int kRows, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, kRowsResidentWarps<kCols, kRows> > kWarps
                                                   ? kRowsResidentWarps<kCols, kRows> / kWarps
                                                   : 1)
    rows_panel_kernel(const float* src, float* h, float* tau_out, float* t_out, __half* halves_out,
                      int64_t matrix_stride, int64_t row_stride, RowSplit split, int width) {
  using Shared = RowsShared<kCols, kRows, kWarps>;
  constexpr int kWidth = Shared::kWidth, kPitch = Shared::kPitch, kOwn = kCols / 4, kSumsPitch = Shared::kSumsPitch;
  constexpr float kLargest = 0x1.fffffep127f;
  static_assert(kCols % 4 == 0 && kRows % kStripRows == 0 && kWidth <= 4 * kRows,
                "whole quads; all pivots lie in warp 0");
  static_assert(kWarps == 1 || kWarps % 2 == 0, "sums are read by vectors");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);

  const int lane = threadIdx.x % 32, warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);
  const int column_lane = lane / 4, row_lane = lane % 4, part = 4 * warp + row_lane;
  const int own_first = column_lane + 8 * row_lane;  // of the columns whose sums this lane finishes
  // A matrix, or one of the blocks that its rows are cut into.
  const int block = static_cast<int>(blockIdx.x % split.blocks), rows = split.rows_of(block);
  const int64_t corner = blockIdx.x / split.blocks * matrix_stride + split.first_row(block) * row_stride;

  const auto barrier = [] {
    if constexpr (kWarps > 1)
      __syncthreads();
    else
      __syncwarp();
  };
  // The sum, or the largest, of the warps' entries.
  const auto over_warps = [](const float* entries, auto combine) {
    float result = entries[0];
    if constexpr (kWarps % 4 == 0) {
#pragma unroll
      for (int w = 0; w < kWarps; w += 4) {
        const float4 item = *reinterpret_cast<const float4*>(&entries[w]);
        const float of_four = combine(combine(item.x, item.y), combine(item.z, item.w));
        result = w == 0 ? of_four : combine(result, of_four);
      }
    } else if constexpr (kWarps % 2 == 0) {
#pragma unroll
      for (int w = 0; w < kWarps; w += 2) {
        const float2 item = *reinterpret_cast<const float2*>(&entries[w]);
        const float of_two = combine(item.x, item.y);
        result = w == 0 ? of_two : combine(result, of_two);
      }
    }
    return result;
  };
  const auto sum_of_warps = [&](const float* entries) {
    return over_warps(entries, [](float x, float y) { return x + y; });
  };
  const auto largest_of_warps = [&](const float* entries) {
    return over_warps(entries, [](float x, float y) { return fmaxf(x, y); });
  };

  float a[kCols][kRows];
  {
    const float* const source = src + corner + part * kRows * row_stride + column_lane;
    int limit[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c) limit[c] = column_lane + 8 * c < width ? rows - part * kRows : 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) a[c][r] = r < limit[c] ? source[r * row_stride + 8 * c] : 0.0f;
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    float magnitude = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) magnitude = fmaxf(magnitude, fabsf(a[c][r]));
    magnitude = group_max<4>(magnitude);
    if (row_lane == c % 4) shared.sums[1][column_lane + 8 * c][warp] = magnitude;
  }
  barrier();
  float own_factor[kOwn], own_rescale[kOwn];
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const float scale = power_of_two_scale(largest_of_warps(shared.sums[1][column_lane + 8 * c]));
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[c][r] *= scale;
    if (row_lane == c % 4) own_factor[c / 4] = reciprocal_of_scale(scale);
    own_rescale[c / 4] = 1.0f;
  }

  constexpr int kXBuffer = 4 * (kRows + 4), kSumsBuffer = kWidth * kSumsPitch;
  int buffer = 0;
#pragma unroll
  for (int set = 0; set < kCols; ++set) {
    const int pivot_part = 8 * set / kRows;
    const bool has_pivot = part == pivot_part;
    float* const rows_of_pivots = shared.h + pivot_part * (Shared::kPartPitch - kRows * kPitch);
    const int end = min(width, 8 * (set + 1));
    int k = 8 * set;
#pragma unroll 1
    for (; k < end; ++k) {
      const bool owner = column_lane == k - 8 * set;
      float* const x_place = shared.x[warp][0][row_lane] + buffer * kXBuffer;
      float* const sums = shared.sums[0][0] + buffer * kSumsBuffer;
      float* const pivots = shared.pivots[0] + buffer * kWidth;
      float x[kRows], own_sum[kOwn], own_pivot[kOwn], sum_of_squares, alpha;
      // Publishes `element(r)` of a lane's rows r as x, and sums it up with all columns.
      const auto sum_up = [&](auto element) {
        if (owner) {
#pragma unroll
          for (int r = 0; r < kRows; r += 4)
            *reinterpret_cast<float4*>(x_place + r) = {element(r), element(r + 1), element(r + 2), element(r + 3)};
        }
        if (has_pivot) {
#pragma unroll
          for (int c = set; c < kCols; ++c) pivots[column_lane + 8 * c] = a[c][0];
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < kRows; r += 4) {
          const float4 item = *reinterpret_cast<const float4*>(x_place + r);
          x[r] = item.x;
          x[r + 1] = item.y;
          x[r + 2] = item.z;
          x[r + 3] = item.w;
        }
        if (has_pivot) x[0] = 0.0f;
        float of_lane[kCols];
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float chains[4] = {};
          if (c >= set) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) chains[r % 4] = fmaf(x[r], a[c][r], chains[r % 4]);
          }
          of_lane[c] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
        }
        // Every lane of a column keeps the sums of its own columns.
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (4 * i + 3 < set) continue;
          const bool odd = row_lane & 1, upper = row_lane & 2;
          float halves[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float even_sum = of_lane[4 * i + 2 * j], odd_sum = of_lane[4 * i + 2 * j + 1];
            halves[j] = (odd ? odd_sum : even_sum) + __shfl_xor_sync(kFullWarp, odd ? even_sum : odd_sum, 1);
          }
          own_sum[i] = (upper ? halves[1] : halves[0]) + __shfl_xor_sync(kFullWarp, upper ? halves[0] : halves[1], 2);
          sums[(lane + 32 * i) * kSumsPitch + warp] = own_sum[i];
        }
        barrier();
        sum_of_squares = sum_of_warps(sums + (set / 4 * 32 + 4 * (k - 8 * set) + set % 4) * kSumsPitch);
        alpha = pivots[k];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (4 * i + 3 < set) continue;
          own_sum[i] = sum_of_warps(sums + (lane + 32 * i) * kSumsPitch);
          own_pivot[i] = pivots[own_first + 32 * i];
        }
      };
      sum_up([&](int r) { return a[set][r]; });

      Reflector reflector;
      float rescale = 1.0f;
      if (sum_of_squares >= 0x1p-80f && sum_of_squares <= kLargest) {
        reflector = make_reflector(alpha, sum_of_squares);
      } else {
        float magnitude = 0.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) magnitude = fmaxf(magnitude, fabsf(x[r]));
        magnitude = group_max<4>(magnitude);
        if (lane == 0) shared.magnitude[warp] = magnitude;
        barrier();
        magnitude = largest_of_warps(shared.magnitude);
        const bool finite = sum_of_squares <= kLargest, zero_tail = magnitude == 0.0f;
        if (finite && !zero_tail) rescale = power_of_two_scale(fmaxf(magnitude, fabsf(alpha)));
        sum_up([&](int r) { return finite ? a[set][r] * rescale : 0.0f; });
        float square[1] = {};  // of x itself: the column's registers stay as they are
#pragma unroll
        for (int r = 0; r < kRows; ++r) square[0] = fmaf(x[r], x[r], square[0]);
        group_sum<4>(square);
        if (lane == 0) shared.magnitude[warp] = square[0];
        barrier();
        sum_of_squares = sum_of_warps(shared.magnitude);
        if (finite && zero_tail) {
          reflector = {alpha, 0.0f, 0.0f, 0.0f};
        } else {
          reflector = make_reflector(finite ? alpha * rescale : __int_as_float(0x7fc00000), sum_of_squares);
          reflector.beta *= reciprocal_of_scale(rescale);
        }
      }
      float own_coefficient[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (4 * i + 3 < set) continue;
        const int column = own_first + 32 * i;
        const float projection = fmaf(reflector.inverse, own_sum[i], own_pivot[i]);
        const float updated = fmaf(-reflector.tau, projection, own_pivot[i]);
        own_coefficient[i] = column > k ? reflector.neg_inverse_beta * projection : 0.0f;
        const float result = column > k ? updated : column == k ? reflector.beta : own_pivot[i];
        if (warp == 0 && column >= 8 * set)
          rows_of_pivots[k * kPitch + column] = result * own_rescale[i] * own_factor[i];
        if (column == k) {
          own_factor[i] = reflector.inverse;
          own_rescale[i] = rescale;
          if (warp == 0) shared.tau[k] = reflector.tau;
        }
      }
#pragma unroll
      for (int c = set; c < kCols; ++c) {
        const float coefficient = __shfl_sync(kFullWarp, own_coefficient[c / 4], 4 * column_lane + c % 4);
        const float around = has_pivot ? 0.0f : fmaf(-coefficient, x[0], a[c][0]);
#pragma unroll
        for (int r = 1; r < kRows; ++r) a[c][r - 1] = fmaf(-coefficient, x[r], a[c][r]);
        a[c][kRows - 1] = around;
      }
      buffer ^= 1;
    }
    // A set that is not full turns all the same, with nothing leaving.
#pragma unroll 1
    for (; k < 8 * (set + 1); ++k) {
      const float around = a[set][0];
#pragma unroll
      for (int r = 1; r < kRows; ++r) a[set][r - 1] = a[set][r];
      a[set][kRows - 1] = around;
    }
  }

  // What is still in registers joins the rows that have left.
  if (warp == 0) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      shared.factor[own_first + 32 * i] = own_factor[i];
      shared.rescale[own_first + 32 * i] = own_rescale[i];
    }
  }
  barrier();
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const int column = column_lane + 8 * c, gone = min(width, 8 * (c + 1)) - part * kRows;
    const float factor = shared.factor[column], rescale = shared.rescale[column];
    float* const target = shared.h + part * Shared::kPartPitch + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int turned = (r + 8 * kCols * kRows - 8 * (c + 1)) % kRows;
      if (r >= gone) target[r * kPitch] = a[c][turned] * rescale * factor;
    }
  }
  barrier();

  if (static_cast<int>(threadIdx.x) < width)
    tau_out[int64_t{blockIdx.x} * width + threadIdx.x] = shared.tau[threadIdx.x];
  h += corner;
#pragma unroll 4
  for (int row = warp; row < rows; row += kWarps) {
#pragma unroll
    for (int column = lane; column < kWidth; column += 32) {
      if (column < width) h[row * row_stride + column] = shared.row(row)[column];
    }
  }
  if (t_out == nullptr) return;

  // Of whole matrices.
  using Strip = ReflectorStrip<kWidth, kCols / 4>;  // so that lanes read rows without bank conflicts
  using Reflectors = RowsReflectorsShared<kWidth, kWarps>;
  static_assert(sizeof(Reflectors) <= sizeof(Shared) - sizeof(shared.tau), "they lie where the rows were");
  static_assert(4 * kRows / kStripRows <= kSumStrips, "sums of strips that a warp may keep");
  Reflectors& reflectors = *reinterpret_cast<Reflectors*>(shared.h);
  const int pitch = static_cast<int>(reflector_pitch(width)), column = column_lane * kCols;
  typename Strip::Accumulators acc = {};
#pragma unroll 1
  for (int strip = warp; strip * kStripRows < rows; strip += kWarps) {
    const int row = strip * kStripRows + Strip::first_row(lane);
    const float* const source = shared.row(strip * kStripRows) + Strip::first_row(lane) * kPitch + column;
    typename Strip::Columns v;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < kCols; c += 4) {
        const float4 quad = *reinterpret_cast<const float4*>(source + Strip::further(i) * kPitch + c);
        v[i][c] = quad.x;
        v[i][c + 1] = quad.y;
        v[i][c + 2] = quad.z;
        v[i][c + 3] = quad.w;
      }
    }
    Strip::mask(v, row, column, width);
    typename Strip::Parts parts;
    Strip::split(
        parts, v, [](int) { return float4{kReflectorScale, kReflectorScale, kReflectorScale, kReflectorScale}; },
        [](const SplitQuad&) {});
    if (column < pitch) {
      __half* const halves = halves_out + (int64_t{blockIdx.x} * rows + row) * 2 * pitch + column;
      Strip::store(halves, pitch, parts, row, rows);
    }
    typename Strip::Fragments left, right;
    Strip::pair_rows(left, right, parts);
    Strip::template add_product<kCols>(acc, left, right);
  }
  barrier();
  float* const place = reinterpret_cast<float*>(reflectors.sums[warp]) + lane;
#pragma unroll
  for (int i = 0; i < 4 * Strip::kTiles; ++i) place[32 * i] = acc[i / 4][i % 4];
  // Of no columns: zeros that count.
  if (static_cast<int>(threadIdx.x) < kWidth && static_cast<int>(threadIdx.x) >= width) shared.tau[threadIdx.x] = 0.0f;
  barrier();
  Strip::couple(reflectors.coupling, shared.tau, [&](int index) {
    float4 sum = reflectors.sums[0][index];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) add(sum, reflectors.sums[w][index]);
    return sum;
  });
  barrier();
  t_from_coupling<kWidth>([&](int i) { return shared.tau[i]; }, reflectors.coupling, reflectors.scratch, width,
                          t_out + int64_t{blockIdx.x} * (width * width));
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_ROWS_PANEL_KERNEL_CUH_
