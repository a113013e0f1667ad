// Tiny-regime factorization: part of a warp, a warp or a few warps factor one whole matrix, all of it in registers.
//
// And that of the wide regime: matrices of few rows and any number of columns, in chunks of columns. Part of a warp has
// the first kColumnLanes columns, among which are all pivots, and one of the chunks of the others. So every chunk's
// lanes make all reflectors again, with the same bits; those of the first chunk write them. The first columns must not
// be written while others still read them: not in place.
//
// Ownership. Lane (p, l) of a matrix holds the columns l, l + kColumnLanes, … (kCols of them), and of these the rows
// p·kRows … p·kRows + kRows-1. The row parts p lie in kRowLanes groups of lanes of each of kWarps warps. Neighbouring
// lanes read and write neighbouring columns of a row.
//
// A reflector. The owners of column k write it to shared memory, every lane reads its part of it (x) and sums x·c for
// its columns c (the owner's sum is Σx²). The sums of the parts are added by shuffles and, between warps, through
// shared memory. As in the panel kernel (LAPACK slarfg, slarf):
//     beta = -sign(alpha)·sqrt(alpha² + Σx²),  v = x/(alpha - beta),  c ← c - tau·(c_k + Σv·c)·v.
// Where a warp has a matrix to itself, each lane makes these scalars of its own column before it is known to be the
// next, beside the sums: a chain of fewer instructions, but more of them in all.
//
// The update moves each row up by one register, the first of a part behind its last, so that the pivot is always in
// register 0 and no code depends on k: row k of H leaves when it is final. A set of kColumnLanes columns retires when
// its last reflector is made.
//
// Synchronization. Within a warp __syncwarp: two buffers for x, one barrier a reflector, between the write of x and its
// reads; the buffer of reflector k is written again at k+2, past the barrier of k+1. Between the warps of a matrix a
// named barrier in the same manner. Every warp of a matrix passes the same barriers, whatever the data are: what
// decides on a rescue has the same bits in all of its lanes.
//
// Range: as in the panel kernel, columns are scaled at load, and where Σx² < 2^-80 the owners publish x again, scaled.
// Where Σx² is not finite they publish zeros, and alpha counts as NaN: the column and all later ones become NaN, and
// finished columns, which share registers' rows with them, see only zeros.
//
// Resources. (kCols + 1)·kRows registers a lane for columns and x; 8·(kRows + 4) bytes of shared memory a part, and
// 8·(kWarps + 1) a column of a matrix of several warps.
#ifndef JAXQR_FFI_TINY_KERNEL_CUH_
#define JAXQR_FFI_TINY_KERNEL_CUH_

#include <cstdint>
#include <type_traits>

#include "ptx.cuh"
#include "reflector.cuh"
#include "warp.cuh"

namespace jaxqr {

// Warps of a CTA. Where a lane holds many registers, small CTAs fill an SM better.
template <int kCols, int kWarps, int kRows>
inline constexpr int kTinyWarps = kCols * kRows < 128 ? 4 : 2 * kWarps;

// Warps an SM, a bound on the registers that the compiler may use: as many as do not make it spill.
template <int kCols, int kRows>
inline constexpr int kTinyResidentWarps = (kCols + 1) * kRows <= 16    ? 40
                                          : (kCols + 1) * kRows <= 32  ? 32
                                          : (kCols + 1) * kRows <= 48  ? 24
                                          : (kCols + 1) * kRows <= 64  ? 20
                                          : (kCols + 1) * kRows <= 96  ? 16
                                          : (kCols + 1) * kRows <= 128 ? 12
                                                                       : 8;

// The same for the wide regime: with as many as tiny kernels some architectures would spill.
inline constexpr int kWideResidentWarps = 12;

// Of `count` matrices, or in the wide regime of so many chunks, of which each matrix has `chunks`.
template <int kColumnLanes, int kCols, int kRowLanes, int kWarps, int kRows, bool kWide>
__device__ __forceinline__ void factor_in_registers(const float* src, float* h, float* tau_out, int64_t count, int m,
                                                    int n, [[maybe_unused]] int chunks) {
  constexpr int kCtaWarps = kTinyWarps<kCols, kWarps, kRows>;
  constexpr int kLanes = kColumnLanes * kRowLanes;  // of a matrix in a warp
  constexpr int kGroups = 32 / kLanes;              // matrices of a warp
  constexpr int kParts = kRowLanes * kWarps;
  constexpr int kMaxWidth = kColumnLanes * kCols;
  // Where one part holds all rows, rows leave the registers in steps of this many reflectors: the code of each step is
  // compiled for its rows.
  constexpr int kStageSteps = kParts > 1 ? kColumnLanes : kRows <= 16 ? 4 : 8;
  // Of a dot product, for latency and for roundings without a bias.
  constexpr int kChains = kRows <= 8 || kParts > 1 ? 2 : 4;
  constexpr float kLargest = 0x1.fffffep127f;
  // Whether lanes sum the squares of their columns as they update them, and have scalars ready.
  constexpr bool kAhead = kCols == 1 && kParts == 1 && kLanes == 32;
  constexpr int kPitch = kRows + 4;                                     // of the parts of x: other banks
  constexpr int kBuffer = kGroups * kRowLanes * kPitch;                 // of one x
  constexpr int kExchange = kWarps > 1 ? (kWarps + 1) * kMaxWidth : 0;  // the warps' sums and the pivot row
  static_assert(kRows % 4 == 0 && kRows % kColumnLanes == 0 && (kWide || kParts * kRows >= kMaxWidth),
                "float4 items; a set's pivots lie in one part; a row for every pivot");
  static_assert(!kWide || (kParts == 1 && kRows == kColumnLanes && kCols > 1),
                "all pivots are in the first set of columns, and there are other columns");
  static_assert(32 % kLanes == 0 && kColumnLanes % kStageSteps == 0, "whole groups of lanes, whole stages");
  static_assert(!kAhead || kChains == 4, "the squares' order is that of the sums");
  static_assert(kWarps == 1 || (kLanes == 32 && kCols == 4), "whole matrices; exchanged by float4");

  __shared__ __align__(16) float storage[kCtaWarps * 2 * kBuffer + kCtaWarps / kWarps * 2 * kExchange];

  const int lane = ptx::recomputed(static_cast<int>(threadIdx.x % 32));
  const int warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);
  const int column_lane = lane % kColumnLanes, row_lane = lane / kColumnLanes % kRowLanes, group = lane / kLanes;
  const int matrix_warp = warp % kWarps, part = matrix_warp * kRowLanes + row_lane;

  const int64_t warp_first = (int64_t{blockIdx.x} * kCtaWarps + warp) / kWarps * kGroups;
  if (warp_first >= count) return;
  // Lanes without a matrix repeat the last one and write nothing.
  const bool exists = kGroups == 1 || warp_first + group < count;
  const int64_t unit = exists ? warp_first + group : count - 1;
  const int64_t matrix = kWide ? static_cast<int>(unit) / chunks : unit;
  const int chunk = kWide ? static_cast<int>(unit) % chunks : 0;
  const int chunk_shift = chunk * (kCols - 1) * kColumnLanes;  // of the columns after the first set
  const int columns = exists ? n : 0;                          // to be written
  const int first_columns = chunk == 0 ? columns : 0;          // of the first set
  const auto is_written = [&](int set) {
    return column_lane + set * kColumnLanes + (set > 0 ? chunk_shift : 0) < (set > 0 ? columns : first_columns);
  };

  const uint32_t shared = static_cast<uint32_t>(ptx::recomputed(static_cast<int>(ptx::shared_address(storage))));
  const uint32_t buffers = shared + 4 * (warp * 2 * kBuffer + (group * kRowLanes + row_lane) * kPitch);
  const uint32_t exchanges = shared + 4 * (kCtaWarps * 2 * kBuffer + warp / kWarps * 2 * kExchange);
  [[maybe_unused]] const uint32_t sum_of_both = 2 * buffers + 4 * kBuffer;
  uint32_t buffer = buffers, exchange = exchanges;

  // Of all warps of the matrix.
  const auto barrier = [&] { ptx::barrier_sync<32 * kWarps>(1 + warp / kWarps); };
  // The largest value of the parts that share a column lane, in all of them.
  const auto largest_part = [&](float value) {
#pragma unroll
    for (int mask = kColumnLanes; mask < kLanes; mask *= 2)
      value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, mask));
    if constexpr (kWarps > 1) {
      barrier();
      if (row_lane == 0) ptx::store_shared_1(exchange + 4 * (matrix_warp * kColumnLanes + column_lane), value);
      barrier();
      value = ptx::load_shared_1(exchange + 4 * column_lane);
#pragma unroll
      for (int w = 1; w < kWarps; ++w)
        value = fmaxf(value, ptx::load_shared_1(exchange + 4 * (w * kColumnLanes + column_lane)));
      barrier();
    }
    return value;
  };

  const int64_t row_bytes = int64_t{4} * n;
  float a[kCols][kRows], factor[kCols], tau_own[kCols];  // factor: what a register of the column is times in H
  {
    int64_t source = ptx::global_address(src + matrix * (int64_t{m} * n) + part * kRows * n + column_lane);
    [[maybe_unused]] int64_t shifted = source + int64_t{4} * chunk_shift;
    int limit[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      limit[c] = column_lane + c * kColumnLanes + (c > 0 ? chunk_shift : 0) < n ? m - part * kRows : 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCols; ++c)
        a[c][r] = ptx::load_global((kWide && c > 0 ? shifted : source) + 4 * kColumnLanes * c, r < limit[c]);
      source = ptx::recomputed(source + row_bytes);
      if constexpr (kWide) shifted = ptx::recomputed(shifted + row_bytes);
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    float largest[4] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) largest[r % 4] = fmaxf(largest[r % 4], fabsf(a[c][r]));
    const float magnitude = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
    const float scale = power_of_two_scale(largest_part(magnitude));
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[c][r] *= scale;
    factor[c] = reciprocal_of_scale(scale);
    tau_own[c] = 0.0f;
  }
  // In place, a lane that repeats the last matrix must have read it before its owner writes.
  __syncwarp();
  float own_squares = 0.0f;  // of this lane's column below the next pivot
  if constexpr (kAhead) {
    float chains[kChains] = {};
#pragma unroll
    for (int r = 1; r < kRows; ++r) chains[r % kChains] = fmaf(a[0][r], a[0][r], chains[r % kChains]);
    own_squares = (chains[0] + chains[1]) + (chains[2] + chains[3]);
  }

  const int reflectors = min(m - 1, n);                         // a last row has no tail: tau 0
  float* target = h + matrix * (int64_t{m} * n) + column_lane;  // row k

#pragma unroll
  for (int set = 0; set < kCols; ++set) {
    const int pivot_part = set * kColumnLanes / kRows;
    const bool has_pivot = kParts == 1 || part == pivot_part;
#pragma unroll
    for (int stage = 0; stage < (kWide && set > 0 ? 0 : kColumnLanes / kStageSteps); ++stage) {
      const int first = set * kColumnLanes + stage * kStageSteps;
      const int rows = pivot_part == kParts - 1 ? kRows - first % kRows : kRows;  // of the registers still in use
      const int stage_end = min(reflectors, first + kStageSteps);
#pragma unroll 1
      for (int k = first; k < stage_end; ++k) {
        const int owner = k - set * kColumnLanes;
        const auto publish = [&] {
          if (column_lane == owner) {
#pragma unroll
            for (int r = 0; r < rows; r += 4)
              ptx::store_shared_4(buffer + 4 * r, {a[set][r], a[set][r + 1], a[set][r + 2], a[set][r + 3]});
          }
          __syncwarp();
        };
        publish();
        [[maybe_unused]] Reflector next;
        if constexpr (kAhead) next = make_reflector(a[0][0], own_squares);

        float x[kRows], sums[kCols], sum_of_squares, alpha, pivot_row[kCols];  // sums: of x·c below the pivot
        const auto sum_up = [&](auto has_squares) {
#pragma unroll
          for (int r = 0; r < rows; r += 4) {
            const float4 item = ptx::load_shared_4(buffer + 4 * r);
            x[r] = item.x;
            x[r + 1] = item.y;
            x[r + 2] = item.z;
            x[r + 3] = item.w;
          }
          if constexpr (kParts == 1) alpha = x[0];
          if (has_pivot) x[0] = 0.0f;
#pragma unroll
          for (int c = set; c < kCols; ++c) {
            float chains[kChains] = {};
#pragma unroll
            for (int r = kParts == 1 ? 1 : 0; r < rows; ++r)
              chains[r % kChains] = fmaf(x[r], a[c][r], chains[r % kChains]);
            sums[c] = chains[0] + chains[1];
            if constexpr (kChains == 4) sums[c] += chains[2] + chains[3];
          }
#pragma unroll
          for (int mask = kColumnLanes; mask < kLanes; mask *= 2) {
#pragma unroll
            for (int c = set; c < kCols; ++c) sums[c] += __shfl_xor_sync(kFullWarp, sums[c], mask);
          }
          if constexpr (kWarps == 1) {
            sum_of_squares =
                __shfl_sync(kFullWarp, decltype(has_squares)::value ? own_squares : sums[set], owner, kColumnLanes);
#pragma unroll
            for (int c = set; c < kCols; ++c) {
              pivot_row[c] = a[c][0];
              if constexpr (kParts > 1)
                pivot_row[c] = __shfl_sync(kFullWarp, a[c][0], pivot_part * kColumnLanes + column_lane, kLanes);
            }
            if constexpr (kParts > 1) alpha = ptx::load_shared_1(buffer + 4 * (pivot_part - row_lane) * kPitch);
          } else {
            const uint32_t own = exchange + 16 * column_lane, pivots = 4 * kWarps * kMaxWidth;
            if (row_lane == 0) {
              ptx::store_shared_4(own + 4 * matrix_warp * kMaxWidth, {sums[0], sums[1], sums[2], sums[3]});
              if (matrix_warp * kRowLanes == pivot_part)
                ptx::store_shared_4(own + pivots, {a[0][0], a[1][0], a[2][0], a[3][0]});
            }
            barrier();
            const uint32_t owners = exchange + 16 * owner + 4 * set;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
              const float4 item = ptx::load_shared_4(own + 4 * w * kMaxWidth);
              const float of_warp[4] = {item.x, item.y, item.z, item.w},
                          of_owner = ptx::load_shared_1(owners + 4 * w * kMaxWidth);
#pragma unroll
              for (int c = set; c < kCols; ++c) sums[c] = w == 0 ? of_warp[c] : sums[c] + of_warp[c];
              sum_of_squares = w == 0 ? of_owner : sum_of_squares + of_owner;
            }
            const float4 item = ptx::load_shared_4(own + pivots);
            pivot_row[0] = item.x;
            pivot_row[1] = item.y;
            pivot_row[2] = item.z;
            pivot_row[3] = item.w;
            alpha = ptx::load_shared_1(owners + pivots);
          }
        };
        sum_up(std::bool_constant<kAhead>{});
        Reflector reflector;
        if constexpr (kAhead) {
          const auto of_owner = [&](float value) { return __shfl_sync(kFullWarp, value, owner); };
          reflector = {of_owner(next.beta), of_owner(next.tau), of_owner(next.inverse),
                       of_owner(next.neg_inverse_beta)};
        }

        float rescale = 1.0f;
        bool zero_tail = false;
        const bool ordinary = sum_of_squares >= 0x1p-80f && sum_of_squares <= kLargest;
        if (!(kGroups == 1 ? ordinary : __all_sync(kFullWarp, ordinary))) {
          // The other matrices of the warp come along and get the same bits again.
          float magnitude = 0.0f;
#pragma unroll 1
          for (int r = 0; r < rows; r += 4) {
            const float4 item = ptx::load_shared_4(buffer + 4 * r);
            if (r > 0 || !has_pivot) magnitude = fmaxf(magnitude, fabsf(item.x));
            magnitude = fmaxf(fmaxf(magnitude, fabsf(item.y)), fmaxf(fabsf(item.z), fabsf(item.w)));
          }
          magnitude = largest_part(magnitude);
          if (!(sum_of_squares <= kLargest)) {
            rescale = __int_as_float(0x7fc00000);
          } else if (!ordinary) {
            zero_tail = magnitude == 0.0f;
            if (!zero_tail) rescale = power_of_two_scale(fmaxf(magnitude, fabsf(alpha)));
          }
          __syncwarp();
          if (column_lane == owner) {
#pragma unroll
            for (int r = 0; r < rows; ++r) a[set][r] = isnan(rescale) ? 0.0f : a[set][r] * rescale;
          }
          publish();
          sum_up(std::false_type{});
          if (isnan(rescale)) alpha = rescale;
          if (zero_tail) alpha = 1.0f;  // any but 0, so that the scalars are finite
          if constexpr (kAhead) reflector = make_reflector(alpha, sum_of_squares);
        }

        if constexpr (!kAhead) reflector = make_reflector(alpha, sum_of_squares);
        if (zero_tail) reflector.tau = 0.0f;
        const float beta = reflector.beta * reciprocal_of_scale(rescale);
        float coefficient[kCols];
#pragma unroll
        for (int c = set; c < kCols; ++c) {
          const float projection = fmaf(reflector.inverse, sums[c], pivot_row[c]);
          coefficient[c] = reflector.neg_inverse_beta * projection;
          const float updated = fmaf(-reflector.tau, projection, pivot_row[c]);
          // Selected, not branched: what follows is the chain from one reflector to the next.
          const bool finished = c == set && column_lane < owner, own = c == set && column_lane == owner;
          coefficient[c] = finished || own ? 0.0f : coefficient[c];
          const float result = own && !zero_tail ? beta : finished || own ? a[c][0] : updated;
          if constexpr (kWide) {
            if (is_written(c)) target[c * kColumnLanes + (c > 0 ? chunk_shift : 0)] = result * factor[c];
          } else {
            if (has_pivot && column_lane + c * kColumnLanes < columns) target[c * kColumnLanes] = result * factor[c];
          }
          const float around = has_pivot ? 0.0f : fmaf(-coefficient[c], x[0], a[c][0]);
          [[maybe_unused]] float chains[kChains] = {};
#pragma unroll
          for (int r = 1; r < rows; ++r) {
            const float value = a[c][r - 1] = fmaf(-coefficient[c], x[r], a[c][r]);
            if (kAhead && r > 1) chains[(r - 1) % kChains] = fmaf(value, value, chains[(r - 1) % kChains]);
          }
          a[c][rows - 1] = around;
          if constexpr (kAhead) own_squares = (chains[0] + chains[1]) + (chains[2] + chains[3]);
        }
        if (column_lane == owner) {
          factor[set] = reflector.inverse;
          tau_own[set] = reflector.tau;
        }
        target += n;
        // What is kept for several parts would spill otherwise.
        buffer = (kParts > 1 ? sum_of_both : 2 * buffers + 4 * kBuffer) - buffer;
        if constexpr (kWarps > 1) exchange = 2 * exchanges + 4 * kExchange - exchange;
      }
    }

    const int done = min(reflectors, (set + 1) * kColumnLanes), column = column_lane + set * kColumnLanes;
    if constexpr (kWide) {  // only the last row is left
      if (is_written(set)) target[column + (set > 0 ? chunk_shift : 0) - column_lane] = a[set][0] * factor[set];
    } else if constexpr (kParts == 1) {
      if (done < m) {
        const int left = column < columns ? m - done : 0;
        int64_t place = ptx::global_address(target + set * kColumnLanes);
#pragma unroll
        for (int r = 0; r < kRows - set * kColumnLanes; ++r) {
          ptx::store_global(place, a[set][r] * factor[set], r < left);
          place = ptx::recomputed(place + row_bytes);
        }
      }
    } else {
      // Register r of a part holds its row r + shift, counted around; of the part with the next pivot the rows before
      // that are gone, and of the parts before it all.
      const int shift = done % kRows, next_part = done / kRows;
      const int limit = column < columns && part >= next_part ? min(kRows, m - part * kRows) : 0;
      const int around = part > next_part ? -kRows : kRows;
      float* const retired = target + (part * kRows - done) * n + set * kColumnLanes;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        int row = r + shift;
        if (row >= kRows) row += around;
        if (row < limit) retired[row * n] = a[set][r] * factor[set];
      }
    }
    if (column < min(set > 0 ? columns : first_columns, m) && part == 0)
      tau_out[matrix * min(m, n) + column] = tau_own[set];
  }
}

template <int kColumnLanes, int kCols, int kRowLanes, int kWarps, int kRows>
__global__ void __launch_bounds__(32 * kTinyWarps<kCols, kWarps, kRows>,
                                  kTinyResidentWarps<kCols, kRows> / kTinyWarps<kCols, kWarps, kRows>)
    tiny_kernel(const float* src, float* h, float* tau, int64_t batch, int m, int n) {
  factor_in_registers<kColumnLanes, kCols, kRowLanes, kWarps, kRows, false>(src, h, tau, batch, m, n, 1);
}

// Matrices of at most kRows rows, and at least as many columns as rows.
template <int kRows, int kCols>
__global__ void __launch_bounds__(32 * kTinyWarps<kCols, 1, kRows>, kWideResidentWarps / kTinyWarps<kCols, 1, kRows>)
    wide_kernel(const float* src, float* h, float* tau, int64_t count, int m, int n, int chunks) {
  factor_in_registers<kRows, kCols, 1, 1, kRows, true>(src, h, tau, count, m, n, chunks);
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_TINY_KERNEL_CUH_
