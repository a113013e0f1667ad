// CTA-regime panel factorization where the columns are more than the warps of a CTA can hold: the warps take turns.
//
// Ownership. The panel's columns are sets of kCols; warp w takes the sets w, w + warps, … one after the other
// (panel_columns.cuh). A set is read from the matrix when its turn comes and goes back to it as H when it is done, in
// words of four columns a row.
//
// A pipeline. As in panel_kernel.cuh a warp applies the reflectors of all earlier sets as they come, and then factors
// its own: warps that are done with a set begin with the next one while later warps still work on theirs, so that one
// CTA takes 64 columns of 1024 rows as fast as two CTAs of a cluster that hold all of them, and leaves the other
// multiprocessor to an update beside it. T and V's halves are made by another kernel (reflectors.h).
//
// Synchronization. One mbarrier a reflector, an arrival by every lane of the warp that made it. The reflectors stay in
// shared memory. Where it has fewer places, the last reflectors take those of the first, once all lanes of all warps
// have read these for their last sets, of which one more mbarrier tells. Only last sets have reflectors that wait so:
// there are as many places as reflectors before the last turn. And no set has to wait before it has got that far: there
// are as many places as columns of a turn, so that the first reflectors are of earlier sets. So every wait ends,
// whatever the data are.
//
// Resources. (kCols + 1)·kRows registers a lane for columns and x; reflectors at full height in shared memory.
#ifndef JAXQR_FFI_PANEL_TURNS_KERNEL_CUH_
#define JAXQR_FFI_PANEL_TURNS_KERNEL_CUH_

#include <cstdint>

#include "panel.h"
#include "panel_blocks.cuh"
#include "panel_columns.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace jaxqr {

struct __align__(16) PanelTurnsShared {
  float tau[kMaxTurnsWidth], unscale[kMaxTurnsWidth];
  uint64_t published[kMaxTurnsWidth];  // an mbarrier a reflector
  uint64_t vacated;                    // the places that are used again
};

// `places` of reflectors are in shared memory. CTA i + `ahead` follows where CTA i has been.
template <int kCols, int kRows, int kMaxWarps>
__global__ void __launch_bounds__(32 * kMaxWarps)
    panel_turns_kernel(const float* src, float* h, float* tau_out, PanelBlocks blocks, int width, int places,
                       int ahead) {
  using Columns = PanelColumns<kCols, kRows>;
  constexpr int kPivotRows = kMaxTurnsWidth / 32;
  static_assert(kCols == 4, "whole words");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  PanelTurnsShared& shared = *reinterpret_cast<PanelTurnsShared*>(shared_memory);
  float* const reflectors = reinterpret_cast<float*>(shared_memory + sizeof(PanelTurnsShared));
  const auto place_of = [&](int k) { return reflectors + (k < places ? k : k - places) * Columns::kHeight; };

  const int lane = threadIdx.x % 32, warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0), warps = blockDim.x / 32;
  const int rows = blocks.rows_of(blockIdx.x);
  const int64_t corner = blocks.corner_of(blockIdx.x);
  const int reused = max(0, (width + kCols - 1) / kCols * kCols - places);

  for (int k = threadIdx.x; k < kMaxTurnsWidth; k += blockDim.x) ptx::mbarrier_init(&shared.published[k], 32);
  if (threadIdx.x == 0) ptx::mbarrier_init(&shared.vacated, blockDim.x);
  __syncthreads();

#pragma unroll 1
  for (int first = kCols * warp; first < width; first += kCols * warps) {
    Columns columns;
    const int row_floats = min(width - first, kCols);  // of a row of the set
    {
      if (blocks.whole_words(src + corner, width)) {
        const float* const source = src + corner + lane * blocks.row_stride + first;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float4 word = {};
          if (lane + 32 * r < rows) word = *reinterpret_cast<const float4*>(source + 32 * r * blocks.row_stride);
          columns.a[0][r] = word.x;
          columns.a[1][r] = word.y;
          columns.a[2][r] = word.z;
          columns.a[3][r] = word.w;
        }
      } else {  // elements side by side, for fewer parts of sectors
        const int column = lane % 4, row = column < row_floats ? lane - column : rows;
        const float* const source = src + corner + row * blocks.row_stride + first + column;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float values[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            values[i] = row + 32 * r + i < rows ? source[(32 * r + i) * blocks.row_stride] : 0.0f;
          transpose_quads(values, lane);
#pragma unroll
          for (int c = 0; c < kCols; ++c) columns.a[c][r] = values[c];
        }
      }
    }
    columns.scale(&shared.unscale[first], lane);
    if (const unsigned next = blockIdx.x + ahead; first < kCols * warps && next < gridDim.x)
      blocks.prefetch(src, next, width);

    const bool last_turn = first + kCols * warps >= width;
#pragma unroll 1
    for (int k = 0; k < first; ++k) {
      ptx::mbarrier_wait_first_phase(&shared.published[k]);
      float v[kRows];
      Columns::load(v, place_of(k), lane);
      if (k == reused - 1 && last_turn) ptx::mbarrier_arrive(&shared.vacated);
      columns.template apply<kPivotRows>(v, shared.tau[k], k, lane);
    }
    const auto publish = [&](int k, const float (&v)[kRows], float tau) {
      if (k >= places) ptx::mbarrier_wait_first_phase(&shared.vacated);
      Columns::store(v, place_of(k), lane);
      if (lane == 0) shared.tau[k] = tau;
      ptx::mbarrier_arrive(&shared.published[k]);
    };
    columns.template factor<kPivotRows>(first, lane, publish, nullptr);

    __syncwarp();  // scales and tau are there
    const float4 unscale = *reinterpret_cast<const float4*>(&shared.unscale[first]);
    // From here on, what depends on the lane is found again rather than kept in registers.
    const int out_lane = ptx::recomputed(lane);
    const auto row_of_h = [&](int r) {
      return columns.row_of_h(r, r < kPivotRows ? first - out_lane - 32 * r : -kCols, unscale);
    };
    if (blocks.whole_words(h + corner, width)) {
      float* const target = h + corner + out_lane * blocks.row_stride + first;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 word = row_of_h(r);
        if (out_lane + 32 * r < rows) *reinterpret_cast<float4*>(target + 32 * r * blocks.row_stride) = word;
      }
    } else {
      const int column = out_lane % 4, row = column < row_floats ? out_lane - column : rows;
      float* const target = h + corner + row * blocks.row_stride + first + column;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 word = row_of_h(r);
        float values[4] = {word.x, word.y, word.z, word.w};
        transpose_quads(values, out_lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (row + 32 * r + i < rows) target[(32 * r + i) * blocks.row_stride] = values[i];
        }
      }
    }
    if (out_lane < row_floats) tau_out[int64_t{blockIdx.x} * width + first + out_lane] = shared.tau[first + out_lane];
  }
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_PANEL_TURNS_KERNEL_CUH_
