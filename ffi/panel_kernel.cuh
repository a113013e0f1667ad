// CTA-regime panel factorization: one CTA factors one panel in the registers of its warps, which share the columns. The
// panel has all rows of a matrix or, as a leaf of a tall panel, a block of them.
//
// Ownership. Warp w holds the columns kCols·w … of the panel (panel_columns.cuh).
//
// A pipeline. The warps do not take turns with each reflector: a warp first applies the reflectors of the warps before
// it, as they come, and then factors its own columns alone, with shuffles in place of barriers, and publishes each
// reflector in shared memory as it is made. The next warp has then applied all but the last one.
//
// For T, where wanted, warps that have done with their own columns keep V there and multiply each later reflector with
// it. (The products of their own come with their factorization.) At the end each warp makes its own columns of T, by
// substitution in (I + diag(tau)·N)·T = diag(tau), N being VᵀV above its diagonal, and then takes its share of the rows
// that go out: a larger one the fewer steps its columns took. LAPACK's slarft, which makes each column from those
// before it, has up to twice the error on smooth columns.
//
// Synchronization. One mbarrier a reflector, an arrival by the warp that made it. Each is used once, and reflectors
// stay in shared memory, so that nobody waits for a place. A warp waits only for what warps before it do
// unconditionally: every wait ends, whatever the data are.
//
// Resources. (kCols + 1)·kRows registers a lane for columns and x; in shared memory all reflectors at full height,
// where before them the panel's rows come in, and for T a square.
#ifndef JAXQR_FFI_PANEL_KERNEL_CUH_
#define JAXQR_FFI_PANEL_KERNEL_CUH_

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "mma.cuh"
#include "panel_blocks.cuh"
#include "panel_columns.cuh"
#include "ptx.cuh"
#include "reflector_halves.h"
#include "warp.cuh"

namespace jaxqr {

// What a CTA shares beside the reflectors, with an entry a column of the panel.
template <int kMaxWidth>
struct __align__(16) PanelScalars {
  float tau[kMaxWidth], unscale[kMaxWidth];
  uint64_t published[kMaxWidth];  // an mbarrier a reflector
  int turns;                      // taken by warps in the rows that go out
};

// Columns of the widest panel that gets T.
constexpr int kProductsSide = 64;

// CTAs that share an SM's registers at the least: two where the compiler needs no more than that leaves.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <int kCols, int kRows, int kMaxWarps>
constexpr int kPanelResident = kMaxWarps <= 16 && kCols * kRows * kMaxWarps <= 512 ? 2 : 1;
#else
template <int kCols, int kRows, int kMaxWarps>
constexpr int kPanelResident = 1;
#endif

// CTA i + `ahead` follows where CTA i has been.
template <int kCols, int kRows, int kMaxWarps>
__global__ void __launch_bounds__(32 * kMaxWarps, (kPanelResident<kCols, kRows, kMaxWarps>))
    panel_kernel(const float* src, float* h, float* tau_out, float* t_out, __half* halves_out, PanelBlocks blocks,
                 int width, int ahead) {
  using Columns = PanelColumns<kCols, kRows>;
  constexpr int kHeight = Columns::kHeight, kMaxWidth = kCols * kMaxWarps;
  constexpr int kPivotRows = (kMaxWidth + 31) / 32;  // registers of a column that may hold pivots
  static_assert(kCols == 4, "whole words");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  using Scalars = PanelScalars<kMaxWidth>;
  Scalars& shared = *reinterpret_cast<Scalars*>(shared_memory);
  float* const reflectors = reinterpret_cast<float*>(shared_memory + sizeof(Scalars));
  const int warps = blockDim.x / 32;
  float (*const products)[kProductsSide] =  // VᵀV above its diagonal, [k][i] for i < k
      reinterpret_cast<float (*)[kProductsSide]>(reflectors + warps * kCols * kHeight);

  const int lane = threadIdx.x % 32, warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);
  const int first = kCols * warp;  // of this warp's columns
  const int rows = blocks.rows_of(blockIdx.x);
  const int64_t corner = blocks.corner_of(blockIdx.x), row_stride = blocks.row_stride;

  // By all warps, as those of a warp take turns.
  if (lane < kCols) ptx::mbarrier_init(&shared.published[first + lane], 32);
  if (threadIdx.x == 0) shared.turns = 0;
  // A row's words of four columns lie in shared memory permuted, so that the same word of eight neighbouring rows is in
  // different banks. Where the number of words is an odd one times 2^s, rows begin at 8/2^s places among the banks in
  // turn, and words are moved another way each time around.
  const int words = warps * kCols / 4, swizzle = ((words & -words) - 1) & 7;
  const int shift = swizzle == 7 ? 0 : swizzle == 3 ? 1 : 2;  // 3 - s
  const auto word_of_row = [&](int row, int word) {
    return reflectors + row * (4 * words) + (word ^ (row >> shift & swizzle)) * 4;
  };
  // Neighbouring lanes that share a row of so many items: a power of two.
  const auto lanes_of_row = [](int items) {
    return items > 16 ? 32 : items > 8 ? 16 : items > 4 ? 8 : items > 2 ? 4 : items;
  };
  {
    const bool whole = blocks.whole_words(src + corner, width);
    const int items = whole ? words : 4 * words, item_columns = whole ? 4 : 1;
    const int lanes = lanes_of_row(items), row_step = blockDim.x / lanes;
    for (int item = threadIdx.x % lanes; item < items; item += lanes) {
      const float* from = src + corner + threadIdx.x / lanes * row_stride + item * item_columns;
      const bool valid = item * item_columns < width;
#pragma unroll 4
      for (int row = threadIdx.x / lanes; row < kHeight; row += row_step, from += row_step * row_stride) {
        if (whole)
          ptx::copy_async_16(word_of_row(row, item), from, valid && row < rows);
        else
          ptx::copy_async_4(word_of_row(row, item / 4) + item % 4, from, valid && row < rows);
      }
    }
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
  }
  __syncthreads();

  Columns columns;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float4 word = *reinterpret_cast<const float4*>(word_of_row(lane + 32 * r, first / 4));
    columns.a[0][r] = word.x;
    columns.a[1][r] = word.y;
    columns.a[2][r] = word.z;
    columns.a[3][r] = word.w;
  }
  columns.scale(&shared.unscale[first], lane);
  __syncthreads();  // the rows have left, reflectors may come

  if (const unsigned next = blockIdx.x + ahead; next < gridDim.x) blocks.prefetch(src, next, width);

  // Reflector k, once it is there.
  const auto load_reflector = [&](float (&v)[kRows], int k) {
    ptx::mbarrier_wait_first_phase(&shared.published[k]);
    Columns::load(v, reflectors + k * kHeight, lane);
  };

#pragma unroll 1
  for (int k = 0; k < first; ++k) {
    float v[kRows];
    load_reflector(v, k);
    columns.template apply<kPivotRows>(v, shared.tau[k], k, lane);
  }

  const auto publish = [&](int k, const float (&v)[kRows], float tau) {
    Columns::store(v, reflectors + k * kHeight, lane);
    if (lane == 0) shared.tau[k] = tau;
    ptx::mbarrier_arrive(&shared.published[k]);
  };
  const auto couple = [&](int k, int c, float product) {
    if (t_out != nullptr && lane == 0) products[k][c] = product;
  };
  columns.template factor<kPivotRows>(first, lane, publish, couple);

  if (t_out != nullptr) {
    __syncwarp();
    // V's columns are zero where H's have R: no matter, as the later ones are too.
    for (int k = first + kCols; k < kCols * warps; k += kCols) {
      float sums[kCols * kCols];
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        float v[kRows];
        load_reflector(v, k + j);
        columns.sums_of_lane(*reinterpret_cast<float (*)[kCols]>(&sums[kCols * j]), v);
      }
      const float product = transposed_sum(sums, lane);
      constexpr int kLanesAProduct = Columns::kLanesASum / kCols;
      const int index = lane / kLanesAProduct;
      if (lane % kLanesAProduct == 0) products[k + index / kCols][first + index % kCols] = product;
    }
  }

  __syncthreads();  // the reflectors have been used, and H comes in their place
  const float4 unscale = *reinterpret_cast<const float4*>(&shared.unscale[first]);
  // From here on, what depends on the lane is found again rather than kept in registers.
  const int out_lane = ptx::recomputed(lane);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int distance = r < kPivotRows ? first - out_lane - 32 * r : -4;
    *reinterpret_cast<float4*>(word_of_row(out_lane + 32 * r, first / 4)) = columns.row_of_h(r, distance, unscale);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < width; k += blockDim.x) tau_out[int64_t{blockIdx.x} * width + k] = shared.tau[k];
  // T's columns of this warp, of which lane l has the rows l and 32 + l.
  const auto make_t = [&] {
    float own[kCols][kCols] = {};  // in the rows of the warp's own reflectors
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      own[c][c] = shared.tau[first + c];
#pragma unroll
      for (int i = c - 1; i >= 0; --i) {
        float sum = 0.0f;
#pragma unroll
        for (int k = c; k > i; --k) sum = fmaf(products[first + k][first + i], own[k][c], sum);
        own[i][c] = -own[i][i] * sum;
      }
    }
    float neg_tau[2], sums[2][kCols] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
      neg_tau[half] = out_lane + 32 * half < first ? -shared.tau[out_lane + 32 * half] : 0.0f;
    // The sums of the rows above k, in the first so many halves, get what row k adds.
    const auto add_row = [&](int k, int first_column, const float (&t)[kCols], auto halves) {
#pragma unroll
      for (int half = 0; half < decltype(halves)::value; ++half) {
        const float coupled = out_lane + 32 * half < min(k, first) ? products[k][out_lane + 32 * half] : 0.0f;
#pragma unroll
        for (int c = first_column; c < kCols; ++c) sums[half][c] = fmaf(coupled, t[c], sums[half][c]);
      }
    };
#pragma unroll
    for (int k = kCols - 1; k >= 0; --k) add_row(first + k, k, own[k], std::integral_constant<int, 2>{});
    // Row k's own sums are complete.
    const auto substitute = [&](int k, auto halves) {
      constexpr int half = decltype(halves)::value - 1;
      float t[kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) t[c] = __shfl_sync(kFullWarp, neg_tau[half] * sums[half][c], k - 32 * half);
      add_row(k, 0, t, halves);
    };
    int k = first - 1;
#pragma unroll 4
    for (; k >= 32; --k) substitute(k, std::integral_constant<int, 2>{});
#pragma unroll 4
    for (; k > 0; --k) substitute(k, std::integral_constant<int, 1>{});
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 32 * half + out_lane;
      if (i >= width) continue;
      float t[kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        t[c] = i < first ? neg_tau[half] * sums[half][c] : 0.0f;
#pragma unroll
        for (int k = 0; k <= c; ++k) {
          if (i == first + k) t[c] = own[k][c];
        }
      }
      float* const place = t_out + int64_t{blockIdx.x} * width * width + i * width + first;
      if (width % 4 == 0) {
        if (first < width) *reinterpret_cast<float4*>(place) = {t[0], t[1], t[2], t[3]};
      } else {
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          if (first + c < width) place[c] = t[c];
        }
      }
    }
  };
  if (t_out != nullptr) make_t();

  // H goes out by rows, and V as halves: a word of four columns a lane.
  const bool whole = blocks.whole_words(h + corner, width);
  const int pitch = (width + 7) / 8 * 8, out_words = t_out != nullptr ? pitch / 4 : words;
  const int lanes = lanes_of_row(out_words), rows_at_once = 32 / lanes, word = out_lane % lanes, column = 4 * word;
  const auto take_turn = [&] {
    return __shfl_sync(kFullWarp, out_lane == 0 ? atomicAdd(&shared.turns, 1) : 0, 0) * rows_at_once;
  };
  for (int turn = take_turn(), next; turn < rows; turn = next) {
    next = take_turn();
    const int row = turn + out_lane / lanes;
    if (row >= rows || word >= out_words) continue;
    const float4 item = word < words ? *reinterpret_cast<const float4*>(word_of_row(row, word)) : float4{};
    float values[4] = {item.x, item.y, item.z, item.w};
    float* const place = h + corner + row * row_stride + column;
    if (whole) {
      if (column < width) *reinterpret_cast<float4*>(place) = item;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < width) place[c] = values[c];
      }
    }
    if (t_out == nullptr) continue;
    if (row < pitch) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int distance = row - column - c;
        values[c] = distance > 0 ? values[c] : distance == 0 && column + c < width ? 1.0f : 0.0f;
      }
    }
    const SplitQuad quad = jaxqr::split({values[0] * kReflectorScale, values[1] * kReflectorScale,
                                         values[2] * kReflectorScale, values[3] * kReflectorScale});
    __half* const parts = halves_out + (int64_t{blockIdx.x} * rows + row) * 2 * pitch + column;
    *reinterpret_cast<uint2*>(parts) = quad.high;
    *reinterpret_cast<uint2*>(parts + pitch) = quad.low;
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_KERNEL_CUH_
