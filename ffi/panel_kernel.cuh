// CTA-regime panel factorization: one CTA factors one panel (or one whole matrix) held in the registers of its warps.
//
// Ownership. Warp w owns columns w·kWarpCols … of the panel. Its lanes form kRowLanes × kColLanes; lane (r, g) holds,
// of columns g·kCols … g·kCols+kCols-1 of its warp, the rows 4·(r + kRowLanes·i) + q for item i < kRowsPerLane/4 and q
// < 4. Rows and columns past the panel are zeros. Global memory is read and written by rows, through shared memory.
//
// One reduction a reflector. The owner of column k publishes the raw column x (zero at and above row k, and alpha =
// element k apart) in shared memory. Every warp that still owns columns past k reads it and computes, in one pass and
// one reduction, Σx² and Σx·c for its columns c: from these and c_k follow beta, tau and the update, each warp
// computing the same bits of the scalars (LAPACK slarfg, slarf)
//     beta = -sign(alpha)·sqrt(alpha² + Σx²),  v = x/(alpha - beta),  c ← c - tau·(c_k + Σv·c)·v.
// Then the owner of column k+1, already up to date, publishes it.
//
// Synchronization. One mbarrier a reflector, an arrival by every lane that wrote a part of it, awaited by every
// consumer; each is used once, so nobody waits for a slot. A warp waits only for reflectors of its own or earlier
// warps, each of which publishes unconditionally: every wait ends whatever the data are (NaN included). A column's
// place in shared memory holds first its part of A, which only its own lanes read, and then its reflector, written by
// the same lanes.
//
// Range. Every column is multiplied at load by its own exact power of two (maximum in [1, 2)) and R's part divided by
// it at store; reflectors and tau do not feel it. Orthogonal updates never let a column grow, so no square overflows.
// Where Σx² < 2^-80 (a tail that is tiny against its own column) each warp repeats the sums with x times another exact
// power of two: a decision on Σx² that every warp takes alike, without communication. An exactly zero tail gives tau =
// 0 and keeps alpha.
//
// Resources. About kRowsPerLane·(kCols + 1) data registers a lane; width·rows floats of shared memory.
#ifndef JAXQR_FFI_PANEL_KERNEL_CUH_
#define JAXQR_FFI_PANEL_KERNEL_CUH_

#include <cstdint>

#include "panel.h"
#include "ptx.cuh"
#include "reflector.cuh"
#include "warp.cuh"

namespace jaxqr {

// What a CTA shares beside the reflectors: one entry a column of the panel, at offsets known to the compiler.
template <int kMaxWidth>
struct __align__(16) PanelScalars {
  uint64_t published[kMaxWidth];  // mbarriers
  float scale[kMaxWidth], alpha[kMaxWidth], beta[kMaxWidth];
  float vscale[kMaxWidth];  // v = vscale · published column, below the pivot
};

// Columns lie this far apart in shared memory: float4 aligned, and neighbouring columns in different banks.
__host__ __device__ constexpr int column_pitch(int rows) { return rows + 4; }

// Dynamic shared memory: the scalars and the columns [width, column_pitch(rows)].
template <int kMaxWidth>
constexpr int panel_shared_bytes(int rows, int width) {
  return static_cast<int>(sizeof(PanelScalars<kMaxWidth>)) + 4 * column_pitch(rows) * width;
}

// The widest panel of a variant: as many columns as its warps hold, and no more than its rows.
template <int kRowLanes, int kRowsPerLane, int kCols, int kMaxWarps>
constexpr int kPanelMaxWidth =
    kMaxWarps * (32 / kRowLanes) * kCols < kRowLanes * kRowsPerLane ? kMaxWarps * (32 / kRowLanes) * kCols
                                                                    : kRowLanes * kRowsPerLane;

// Calls use(row, column, load(row, column)) for all row < row_end and column < width, neighbouring lanes on
// neighbouring columns; kUnroll rows are loaded before the first is used, so that as many loads are in flight.
template <int kUnroll, typename Load, typename Use>
__device__ __forceinline__ void for_each_by_rows(int row_end, int width, Load load, Use use) {
  const int log_lanes = width >= 32 ? 5 : 32 - __clz(width - 1);  // lanes a row: a power of two
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_step = (blockDim.x / 32) << (5 - log_lanes);
  const int first_row = (warp << (5 - log_lanes)) + (lane >> log_lanes);
  for (int column = lane & ((1 << log_lanes) - 1); column < width; column += 32) {
    for (int row = first_row; row < row_end; row += kUnroll * row_step) {
      float values[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i)
        values[i] = row + i * row_step < row_end ? load(row + i * row_step, column) : 0.0f;
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (row + i * row_step < row_end) use(row + i * row_step, column, values[i]);
      }
    }
  }
}

template <int kRowLanes, int kRowsPerLane, int kCols, int kMaxWarps>
__global__ void __launch_bounds__(32 * kMaxWarps)
    panel_kernel(const float* src, float* h, float* tau_out, int64_t matrix_stride, int64_t row_stride, int rows,
                 int width) {
  constexpr int kColLanes = 32 / kRowLanes;
  constexpr int kWarpCols = kColLanes * kCols;
  constexpr int kItems = kRowsPerLane / 4;
  constexpr int kItemRows = 4 * kRowLanes;
  constexpr int kRows = kRowLanes * kRowsPerLane;
  constexpr int kPitch = column_pitch(kRows);
  constexpr int kMaxWidth = kPanelMaxWidth<kRowLanes, kRowsPerLane, kCols, kMaxWarps>;
  // A stage is the pivots whose rows lie in the same item: the item index is then a constant, and the items above it
  // need no work.
  constexpr int kStages = (kMaxWidth + kItemRows - 1) / kItemRows;
  // Whether a lane's part of x stays in registers from the sums to the update, or is read from shared memory again.
  constexpr int kRegisters =
      65536 / (32 * ((kMaxWarps + 3) / 4 * 4)) < 255 ? 65536 / (32 * ((kMaxWarps + 3) / 4 * 4)) : 255;
  constexpr bool kKeepReflector = kRowsPerLane * (kCols + 1) + 4 * kCols + 24 <= kRegisters;
  // A lane's part of a sum is as many chains: long ones would round with a bias on smooth columns.
  constexpr int kChains = kRowsPerLane <= 4 ? 1 : kRowsPerLane <= 8 ? 2 : 4;
  static_assert(kRowsPerLane % 4 == 0 && 32 % kRowLanes == 0 && kRowLanes >= 4, "float4 items, whole warps");
  static_assert(kStages <= kItems, "every pivot row lies in an item");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  PanelScalars<kMaxWidth>& shared = *reinterpret_cast<PanelScalars<kMaxWidth>*>(shared_memory);
  float* const columns = reinterpret_cast<float*>(shared_memory + sizeof(shared));

  const int lane = threadIdx.x % 32;
  // Known to be uniform, so that the loop's scalars go to uniform registers.
  const int warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);
  const int row_lane = lane % kRowLanes, group = lane / kRowLanes;
  const int first = warp * kWarpCols + group * kCols;            // this lane's first column
  const int warp_last = min(width, (warp + 1) * kWarpCols) - 1;  // this warp's last column
  const int64_t matrix = blockIdx.x;

  for (int k = threadIdx.x; k < width; k += blockDim.x) ptx::mbarrier_init(&shared.published[k], kRowLanes);
  {
    const float* const source = src + matrix * matrix_stride;
    for_each_by_rows<8>(
        kRows, width, [&](int row, int column) { return row < rows ? source[row * row_stride + column] : 0.0f; },
        [&](int row, int column, float value) { columns[column * kPitch + row] = value; });
  }
  __syncthreads();

  float a[kCols][kRowsPerLane];
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const float* const column = columns + (first + c) * kPitch + 4 * row_lane;
    float magnitude = 0.0f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      float4 item = {};
      if (first + c < width) item = *reinterpret_cast<const float4*>(column + kItemRows * i);
      a[c][4 * i] = item.x;
      a[c][4 * i + 1] = item.y;
      a[c][4 * i + 2] = item.z;
      a[c][4 * i + 3] = item.w;
      magnitude = fmaxf(fmaxf(magnitude, fmaxf(fabsf(item.x), fabsf(item.y))), fmaxf(fabsf(item.z), fabsf(item.w)));
    }
    const float scale = power_of_two_scale(group_max<kRowLanes>(magnitude));
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) a[c][r] *= scale;
    if (row_lane == 0 && first + c < width) shared.scale[first + c] = scale;
  }

  // Publishes this warp's column k: the items from `stage` on, rows up to k as zeros, and alpha.
  const auto publish = [&](int k, int stage) {
    if (group == (k - warp * kWarpCols) / kCols) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        if (first + c != k) continue;
        float* const column = columns + k * kPitch + 4 * row_lane;
        const int pivot = k - 4 * row_lane;  // compared with an element's own offset, an immediate
#pragma unroll
        for (int i = stage; i < kItems; ++i) {
          float x[4];
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            x[q] = a[c][4 * i + q];
            if (i > stage + 1) continue;  // the pivot lies in this item or the next
            if (kItemRows * i + q == pivot) shared.alpha[k] = x[q];
            x[q] = kItemRows * i + q > pivot ? x[q] : 0.0f;
          }
          *reinterpret_cast<float4*>(column + kItemRows * i) = {x[0], x[1], x[2], x[3]};
        }
      }
      ptx::mbarrier_arrive(&shared.published[k]);
    }
  };

  if (warp == 0) publish(0, 0);

#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    const int stage_end = min(warp_last + 1, (stage + 1) * kItemRows);
    for (int k = stage * kItemRows; k < stage_end; ++k) {
      const int pivot_lane = (k - stage * kItemRows) / 4, pivot_q = k % 4;
      float pivot_row[kCols];  // element k of this lane's columns
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float* const item = &a[c][4 * stage];
        const float low = pivot_q & 1 ? item[1] : item[0], high = pivot_q & 1 ? item[3] : item[2];
        pivot_row[c] = __shfl_sync(kFullWarp, pivot_q & 2 ? high : low, pivot_lane, kRowLanes);
      }

      ptx::mbarrier_wait_first_phase(&shared.published[k]);
      const float* const column = columns + k * kPitch + 4 * row_lane;
      float4 kept[kKeepReflector ? kItems : 1];
      if constexpr (kKeepReflector) {
#pragma unroll
        for (int i = stage; i < kItems; ++i) kept[i] = *reinterpret_cast<const float4*>(column + kItemRows * i);
      }
      // Calls use(i, x) for the items of x.
      const auto for_each_item = [&](auto use) {
        if constexpr (kKeepReflector) {
#pragma unroll
          for (int i = stage; i < kItems; ++i) use(i, kept[i]);
        } else {
          constexpr int kGroup = kRowsPerLane * kCols <= 64 ? 4 : 2;  // loads in flight, as registers allow
#pragma unroll
          for (int start = stage; start < kItems; start += kGroup) {
            float4 items[kGroup];
#pragma unroll
            for (int i = 0; i < kGroup; ++i) {
              if (start + i < kItems) items[i] = ptx::load_shared_again(column + kItemRows * (start + i));
            }
#pragma unroll
            for (int i = 0; i < kGroup; ++i) {
              if (start + i < kItems) use(start + i, items[i]);
            }
          }
        }
      };
      const float alpha = shared.alpha[k];

      float sums[kCols + 1];  // of x·factor with this lane's columns and with itself
      const auto sum_up = [&](float factor) {
        float chains[kChains][kCols + 1] = {};
        for_each_item([&](int i, float4 item) {
          const float x[4] = {item.x * factor, item.y * factor, item.z * factor, item.w * factor};
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            float (&chain)[kCols + 1] = chains[q % kChains];
#pragma unroll
            for (int c = 0; c < kCols; ++c) chain[c] = fmaf(x[q], a[c][4 * i + q], chain[c]);
            chain[kCols] = fmaf(x[q], x[q], chain[kCols]);
          }
        });
#pragma unroll
        for (int c = 0; c <= kCols; ++c) {
          if constexpr (kChains == 4) {
            sums[c] = (chains[0][c] + chains[1][c]) + (chains[2][c] + chains[3][c]);
          } else {
            sums[c] = kChains == 2 ? chains[0][c] + chains[kChains - 1][c] : chains[0][c];
          }
        }
        group_sum<kRowLanes>(sums);
      };
      sum_up(1.0f);
      float rescale = 1.0f;
      bool zero_tail = false;
      if (sums[kCols] < 0x1p-80f) {
        float magnitude = 0.0f;
        for_each_item([&](int, float4 item) {
          magnitude = fmaxf(fmaxf(magnitude, fmaxf(fabsf(item.x), fabsf(item.y))), fmaxf(fabsf(item.z), fabsf(item.w)));
        });
        magnitude = group_max<kRowLanes>(magnitude);
        zero_tail = magnitude == 0.0f || fmaxf(magnitude, fabsf(alpha)) < kNegligibleTail;
        if (!zero_tail) {
          rescale = power_of_two_scale(fmaxf(magnitude, fabsf(alpha)));
          sum_up(rescale);
        }
      }

      Reflector reflector = make_reflector(alpha * rescale, sums[kCols]);
      if (zero_tail) reflector = {alpha, 0.0f, 0.0f, 0.0f};
      if (k >= warp * kWarpCols && lane == 0) {
        shared.beta[k] = reflector.beta * reciprocal_of_scale(rescale);
        shared.vscale[k] = reflector.inverse * rescale;
        tau_out[ptx::recomputed(matrix) * width + k] = reflector.tau;
      }
      // The published x is zero at row k, whose elements become c_k - tau·(c_k + Σv·c).
      float coefficient[kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const float projection = fmaf(reflector.inverse, sums[c], pivot_row[c]);
        coefficient[c] = rescale * reflector.neg_inverse_beta * projection;
        pivot_row[c] = fmaf(-reflector.tau, projection, pivot_row[c]);
      }
      for_each_item([&](int i, float4 item) {
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          if (first + c > k) {  // not a zero factor: finished columns must not see Inf or NaN
            float* const rows_of_item = &a[c][4 * i];
            rows_of_item[0] = fmaf(-coefficient[c], item.x, rows_of_item[0]);
            rows_of_item[1] = fmaf(-coefficient[c], item.y, rows_of_item[1]);
            rows_of_item[2] = fmaf(-coefficient[c], item.z, rows_of_item[2]);
            rows_of_item[3] = fmaf(-coefficient[c], item.w, rows_of_item[3]);
            if (i == stage && row_lane == pivot_lane) {
#pragma unroll
              for (int q = 0; q < 4; ++q) rows_of_item[q] = q == pivot_q ? pivot_row[c] : rows_of_item[q];
            }
          }
        }
      });
      if (k + 1 >= warp * kWarpCols && k < warp_last) publish(k + 1, stage);
    }
  }

  // R joins V in shared memory, in the rows that the reflectors leave zero, and both go out by rows.
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    if (first + c >= width) break;
    const float unscale = reciprocal_of_scale(shared.scale[first + c]), beta = shared.beta[first + c] * unscale;
    float* const column = columns + (first + c) * kPitch + 4 * row_lane;
    const int pivot = first + c - 4 * row_lane;
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int row = kItemRows * i + q;
        if (row <= pivot) column[row] = row < pivot ? a[c][4 * i + q] * unscale : beta;
      }
    }
  }
  __syncthreads();
  float* const target = h + matrix * matrix_stride;
  for_each_by_rows<8>(
      rows, width,
      [&](int row, int column) {
        const float value = columns[column * kPitch + row];
        return row > column ? value * shared.vscale[column] : value;
      },
      [&](int row, int column, float value) { target[row * row_stride + column] = value; });
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_KERNEL_CUH_
