// Cluster-regime panel factorization: the CTAs of a thread-block cluster share one panel, each with a part of its rows
// in the registers of its warps.
//
// Ownership. The first `width` rows, those of the pivots, are the top: every CTA has a copy and updates it with the
// same instructions on the same numbers, so that pivots and their rows need no exchange; CTA 0 alone counts it in sums
// and writes it. Of the rows below, CTA r has 32·kRowsPerLane from r·32·kRowsPerLane on. In every CTA warp w owns
// columns w·kCols …; each lane has rows lane + 32·s of the top, s < kTopItems, and of the rest rows 4·(lane + 32·i) + q
// for item i < kRowsPerLane/4 and q < 4. Rows and columns past the panel are zeros. A column that its warp has finished
// takes the last place among the warp's columns, as v: the next pivot column always is the first.
//
// One reduction and one exchange a reflector, of the raw column x as in panel_columns.cuh. The owner of column k
// publishes it to the other warps of its CTA through shared memory, before its own sums, so that the next warp is not
// far behind. Every warp sums x·c for its columns c over the rows of its CTA, sends the sums to the same warp of every
// CTA (its own included), and adds what all sent in the order of their ranks. So the same warp of every CTA has the
// same bits. The owner's own column gives Σx², from which it alone makes beta and tau, and tells the other warps of its
// CTA. (Made by every warp from a sum of its own, they cost 7 to 12% of the time on an H200.)
//
// T, where wanted, of at most kMaxClusterTWidth columns: a warp goes on with v_i·x for its finished columns v_i, in its
// CTA only. CTA 0 adds the CTAs' parts of VᵀV at the end, in the order of their ranks, and inverts.
//
// Synchronization. Within a CTA two mbarriers a column, each used once: the column is published, with an arrival by
// every lane, and its scalars are made. Between CTAs two mbarriers and two buffers a warp, in turn for its exchanges; a
// phase ends when all bytes have come (st.async). Two suffice: a warp sends exchange e + 2 after it has received e + 1
// from every CTA, and each sent that after it had read all of e. A warp waits for columns of smaller index, and for
// exchanges that all CTAs enter unconditionally or by a decision on bits that they share: every wait ends whatever the
// data are (NaN included). The CTAs of a cluster are resident together, and none leaves before all have read what it
// holds.
//
// Range, NaN, signs and tau as in panel_columns.cuh. The maxima for the columns' scales take an exchange, and for a
// tiny tail Σx² < 2^-80 its maximum and the repeated sums one each.
//
// Resources. About (kRowsPerLane + kTopItems)·(kCols + 1) data registers a lane; the CTA's rows and the top of width
// columns in shared memory, and for T a square more.
#ifndef JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_
#define JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_

#include <cstdint>

#include "cluster_panel.h"
#include "cluster_ptx.cuh"
#include "ptx.cuh"
#include "reflector.cuh"
#include "reflector_halves.cuh"
#include "t_factor.cuh"
#include "warp.cuh"

namespace jaxqr {

inline constexpr int kMaxClusterCtas = 16;

// Values of one row of an exchange, one a CTA, lie this far from the next row: the rows' float4s in different banks.
inline constexpr int kExchangePitch = kMaxClusterCtas + 4;

// What the owner of a column x tells the warps that apply its reflector: v = (x·rescale)·inverse below the pivot, and
// c ← c - tau·(v·c)·v is c - neg_inverse_beta·(v·c)·(x·rescale) there.
struct __align__(16) ReflectorScalars {
  float tau, inverse, neg_inverse_beta, rescale;
};

template <int kCols, int kMaxWarps>
struct __align__(16) ClusterShared {
  static constexpr int kMaxWidth = kCols * kMaxWarps;
  ReflectorScalars reflectors[kMaxWidth];
  uint64_t published[kMaxWidth], made[kMaxWidth], exchanged[2][kMaxWarps];  // mbarriers
  float beta[kMaxWidth], scale[kMaxWidth];
  float received[2][kMaxWarps][kCols][kExchangePitch];  // a row a column
};

// Columns lie this far apart in shared memory: float4 aligned, and neighbouring columns in different banks.
__host__ __device__ constexpr int cluster_pitch(int top_items, int rows_per_lane) {
  return 32 * (top_items + rows_per_lane) + 4;
}

// Dynamic shared memory: the above, the columns [width, cluster_pitch], top first, and for T the coupling matrix.
template <int kCols, int kMaxWarps>
constexpr int cluster_shared_bytes(int rows_per_lane, int width, bool has_t) {
  const int top_items = (kCols * kMaxWarps + 31) / 32;
  return static_cast<int>(sizeof(ClusterShared<kCols, kMaxWarps>)) +
         4 * cluster_pitch(top_items, rows_per_lane) * width + (has_t ? 4 * kMaxClusterTWidth * kMaxClusterTWidth : 0);
}

// kCols elements of one row of a row-major matrix, those at and past `count` as zeros.
template <int kCols>
__device__ __forceinline__ void load_row(const float* row, int count, bool vectors, float (&values)[kCols]) {
  if (vectors && count >= kCols) {
#pragma unroll
    for (int c = 0; c < kCols; c += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + c);
      values[c] = four.x;
      values[c + 1] = four.y;
      values[c + 2] = four.z;
      values[c + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) values[c] = c < count ? row[c] : 0.0f;
  }
}

template <int kCols>
__device__ __forceinline__ void store_row(float* row, int count, bool vectors, const float (&values)[kCols]) {
  if (vectors && count >= kCols) {
#pragma unroll
    for (int c = 0; c < kCols; c += 4)
      *reinterpret_cast<float4*>(row + c) = {values[c], values[c + 1], values[c + 2], values[c + 3]};
  } else {
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      if (c < count) row[c] = values[c];
    }
  }
}

// Adds (or, for magnitudes, takes the larger of) the values of `ctas` ranks: 2, 4, 8 or 16.
template <typename Combine>
__device__ __forceinline__ float combine_ranks(const float* row, int ctas, Combine combine) {
  const float4 first = *reinterpret_cast<const float4*>(row);
  float value = combine(first.x, first.y);
  if (ctas > 2) value = combine(value, combine(first.z, first.w));
  const auto four = [&](int i) {
    const float4 v = *reinterpret_cast<const float4*>(row + 4 * i);
    return combine(combine(v.x, v.y), combine(v.z, v.w));
  };
  if (ctas > 4) value = combine(value, four(1));
  if (ctas > 8) value = combine(value, combine(four(2), four(3)));
  return value;
}

// Applies reflector k to a lane's columns kFrom … active-1; those from kFrom on take the places from 0 on. `sums`: Σx·c
// below row k; `pivot_row`: the elements c_k.
template <int kFrom, int kRowsPerLane, int kCols, int kTopItems>
__device__ __forceinline__ void apply_reflector(float (&a)[kCols][kRowsPerLane], float (&top)[kCols][kTopItems], int k,
                                                int active, const ReflectorScalars& scalars,
                                                const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                                                const float (&sums)[kCols], const float (&pivot_row)[kCols]) {
  float y_top[kTopItems];  // in row k the element becomes c_k - tau·(v·c)
#pragma unroll
  for (int s = 0; s < kTopItems; ++s)
    y_top[s] = static_cast<int>(threadIdx.x % 32) + 32 * s == k ? scalars.tau : scalars.neg_inverse_beta * x_top[s];
#pragma unroll
  for (int c = kFrom; c < kCols; ++c) {
    const float projection = c < active ? fmaf(scalars.inverse, sums[c], pivot_row[c]) : 0.0f;  // v·c
    const float coefficient = scalars.neg_inverse_beta * projection;
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) top[c - kFrom][s] = fmaf(-projection, y_top[s], top[c][s]);
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) a[c - kFrom][r] = fmaf(-coefficient, x[r], a[c][r]);
  }
}

// `vectors`: rows of src and h are float4-aligned. Grid: batch·ctas CTAs in clusters of `ctas`.
template <int kRowsPerLane, int kCols, int kMaxWarps>
__global__ void __launch_bounds__(32 * kMaxWarps, 1)
    cluster_panel_kernel(const float* src, float* h, float* tau_out, float* t_out, __half* halves_out,
                         int64_t matrix_stride, int64_t row_stride, int rows, int width, int ctas, bool vectors) {
#if __CUDA_ARCH__ >= 900
  using Shared = ClusterShared<kCols, kMaxWarps>;
  constexpr int kTopItems = (Shared::kMaxWidth + 31) / 32;
  constexpr int kItems = kRowsPerLane / 4;
  constexpr int kTop = 32 * kTopItems;                                        // rows of the top, in shared memory
  constexpr int kPitch = cluster_pitch(kTopItems, kRowsPerLane);              // of a column in shared memory
  constexpr int kGroup = 32 / kCols;                                          // lanes that get the same column's sum
  constexpr int kChains = kRowsPerLane <= 4 ? 1 : kRowsPerLane <= 8 ? 2 : 4;  // as in panel_columns.cuh
  constexpr int kPeers = (kMaxClusterCtas + kGroup - 1) / kGroup;             // a lane sends to at most so many CTAs
  static_assert(kRowsPerLane % 4 == 0, "float4 items");
  static_assert(kCols == 4 || kCols == 8, "float4 rows, a power of two of sums");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  float* const columns = reinterpret_cast<float*>(shared_memory + sizeof(Shared));
  float* const coupling = columns + kPitch * width;
  const bool has_t = t_out != nullptr;

  const int lane = threadIdx.x % 32, group = lane / kGroup;
  const int warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);  // known to be uniform
  const int rank = ptx::cluster_rank();
  const int64_t matrix = blockIdx.x / ctas;
  const int first = warp * kCols, count = min(kCols, width - first);  // this warp's columns
  const int rest_row = width + rank * (32 * kRowsPerLane);            // of the panel, the CTA's first below the top

  for (int k = threadIdx.x; k < width; k += blockDim.x) {
    ptx::mbarrier_init(&shared.published[k], 32);
    ptx::mbarrier_init(&shared.made[k], 1);
  }
  for (int i = threadIdx.x; i < 2 * kMaxWarps; i += blockDim.x) ptx::mbarrier_init(&shared.exchanged[0][i], 1);
  ptx::cluster_arrive_relaxed();

  float a[kCols][kRowsPerLane], top[kCols][kTopItems];
  {
    const float* const source = src + matrix * matrix_stride + first;
    const auto load = [&](int row, bool inside, auto keep) {
      float values[kCols] = {};
      if (inside) load_row<kCols>(source + row * row_stride, count, vectors, values);
#pragma unroll
      for (int c = 0; c < kCols; ++c) keep(c, values[c]);
    };
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) {
      const int row = rest_row + 4 * (lane + 32 * (r / 4)) + r % 4;
      load(row, row < rows, [&](int c, float value) { a[c][r] = value; });
    }
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) {
      const int row = lane + 32 * s;
      load(row, row < width, [&](int c, float value) { top[c][s] = value; });
    }
  }

  // The exchange. A lane sends its group's value to one CTA in kGroup; received row g is what all CTAs' groups g sent.
  const uint32_t received_bytes = sizeof(shared.received[0]), barrier_bytes = sizeof(shared.exchanged[0]);
  const uint32_t barrier = ptx::shared_address(&shared.exchanged[0][warp]);
  const uint32_t outbox = ptx::shared_address(&shared.received[0][warp][group][rank]);
  int exchanges = 0;
  const auto send = [&](float value) {
    const uint32_t buffer = exchanges & 1;
    __syncwarp();  // all lanes have read the exchange before the last
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      const int peer = lane % kGroup + kGroup * i;
      ptx::store_async_if(peer < ctas, ptx::map_to_rank(outbox + buffer * received_bytes, peer), value,
                          ptx::map_to_rank(barrier + buffer * barrier_bytes, peer));
    }
  };
  const auto receive = [&] {  // returns the rows
    const uint32_t buffer = exchanges & 1;
    if (lane == 0) ptx::mbarrier_arrive_expect_bytes(barrier + buffer * barrier_bytes, kCols * ctas * sizeof(float));
    ptx::mbarrier_wait_cluster(barrier + buffer * barrier_bytes, exchanges >> 1 & 1);
    ++exchanges;
    return &shared.received[buffer][warp][0];
  };
  const auto add = [](float x, float y) { return x + y; };
  const auto larger = [](float x, float y) { return fmaxf(x, y); };

  ptx::cluster_wait();

  {
    float mine = 0.0f;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      float magnitude = 0.0f;
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) magnitude = fmaxf(magnitude, fabsf(a[c][r]));
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) magnitude = fmaxf(magnitude, fabsf(top[c][s]));
      magnitude = group_max<32>(magnitude);
      if (group == c) mine = magnitude;
    }
    send(mine);
    const auto received = receive();
    const float scale = power_of_two_scale(combine_ranks(received[group], ctas, larger));
    if (lane % kGroup == 0) shared.scale[first + group] = scale;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const float factor = __shfl_sync(kFullWarp, scale, c * kGroup);
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) a[c][r] *= factor;
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) top[c][s] *= factor;
    }
  }

  const auto load_column = [&](int k, float (&x)[kRowsPerLane], float (&x_top)[kTopItems]) {
    const float* const column = columns + k * kPitch;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const float4 item = *reinterpret_cast<const float4*>(column + kTop + 4 * (lane + 32 * i));
      x[4 * i] = item.x;
      x[4 * i + 1] = item.y;
      x[4 * i + 2] = item.z;
      x[4 * i + 3] = item.w;
    }
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) x_top[s] = column[lane + 32 * s];
  };
  // Sums over the lane's rows in kChains chains: long ones would round with a bias on smooth columns.
  const auto dot = [&](const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems], const float (&c)[kRowsPerLane],
                       const float (&c_top)[kTopItems]) {
    float chains[kChains] = {};
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) chains[0] = fmaf(x_top[s], c_top[s], chains[0]);
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) chains[r % kChains] = fmaf(x[r], c[r], chains[r % kChains]);
    if constexpr (kChains == 4) return (chains[0] + chains[1]) + (chains[2] + chains[3]);
    return kChains == 2 ? chains[0] + chains[kChains - 1] : chains[0];
  };

  // Element k of a column of the top.
  const auto pivot_of = [&](const float (&values)[kTopItems], int k) {
    float value = values[0];
#pragma unroll
    for (int s = 1; s < kTopItems; ++s) value = k >= 32 * s ? values[s] : value;
    return __shfl_sync(kFullWarp, value, k % 32);
  };
  // The sums x·c for this warp's columns c over the rows below k, and the elements c_k, in every lane. Returns the
  // received rows, and leaves in `part` what the lane sent.
  float part;
  const auto take_sums = [&](int k, const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                             float (&sums)[kCols], float (&pivot_row)[kCols]) {
    float counted[kTopItems], parts[kCols];
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) counted[s] = rank == 0 ? x_top[s] : 0.0f;
#pragma unroll
    for (int c = 0; c < kCols; ++c) parts[c] = dot(x, counted, a[c], top[c]);
    part = transposed_sum(parts, lane);
    send(part);
#pragma unroll
    for (int c = 0; c < kCols; ++c) pivot_row[c] = pivot_of(top[c], k);
    const auto received = receive();
    const float sum = combine_ranks(received[group], ctas, add);
#pragma unroll
    for (int c = 0; c < kCols; ++c) sums[c] = __shfl_sync(kFullWarp, sum, c * kGroup);
    return received;
  };

  // Reflectors of earlier warps.
  for (int k = 0; k < first; ++k) {
    ptx::mbarrier_wait_first_phase(&shared.published[k]);
    float x[kRowsPerLane], x_top[kTopItems], sums[kCols], pivot_row[kCols];
    load_column(k, x, x_top);
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) x_top[s] = lane + 32 * s > k ? x_top[s] : 0.0f;
    take_sums(k, x, x_top, sums, pivot_row);
    ptx::mbarrier_wait_first_phase(&shared.made[k]);
    const ReflectorScalars scalars = shared.reflectors[k];
    if (scalars.rescale != 1.0f) {
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) x_top[s] *= scalars.rescale;
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) x[r] *= scalars.rescale;
      take_sums(k, x, x_top, sums, pivot_row);
    }
    apply_reflector<0>(a, top, k, kCols, scalars, x, x_top, sums, pivot_row);
  }

  // The warp's own, always the column in the first place. Done with, it becomes v and takes the last place.
  for (int k = first; k < first + count; ++k) {
    {
      float* const column = columns + k * kPitch;
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        *reinterpret_cast<float4*>(column + kTop + 4 * (lane + 32 * i)) = {a[0][4 * i], a[0][4 * i + 1],
                                                                           a[0][4 * i + 2], a[0][4 * i + 3]};
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) column[lane + 32 * s] = top[0][s];
      ptx::mbarrier_arrive(&shared.published[k]);
    }
    float whole_top[kTopItems];
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) {
      whole_top[s] = top[0][s];
      top[0][s] = lane + 32 * s > k ? top[0][s] : 0.0f;
    }
    float sums[kCols], pivot_row[kCols], alpha, sum_of_squares, rescale = 1.0f;
    bool zero_tail = false;
    for (;;) {
      const auto received = take_sums(k, a[0], top[0], sums, pivot_row);
      sum_of_squares = combine_ranks(received[0], ctas, add);
      alpha = pivot_of(whole_top, k);
      if (!(sum_of_squares < 0x1p-80f) || rescale != 1.0f) break;
      float magnitude = 0.0f;
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) magnitude = fmaxf(magnitude, fabsf(top[0][s]));
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) magnitude = fmaxf(magnitude, fabsf(a[0][r]));
      send(group_max<32>(magnitude));
      magnitude = combine_ranks(receive()[group], ctas, larger);
      zero_tail = magnitude == 0.0f || fmaxf(magnitude, fabsf(alpha)) < kNegligibleTail;
      if (zero_tail) break;
      rescale = power_of_two_scale(fmaxf(magnitude, fabsf(alpha)));
      if (rescale == 1.0f) break;
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) top[0][s] *= rescale;
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) a[0][r] *= rescale;
    }

    Reflector reflector = make_reflector(alpha * rescale, sum_of_squares);
    if (zero_tail) reflector = {alpha, 0.0f, 0.0f, 0.0f};
    const ReflectorScalars scalars = {reflector.tau, reflector.inverse, reflector.neg_inverse_beta, rescale};
    if (lane == 0) {
      shared.reflectors[k] = scalars;
      shared.beta[k] = reflector.beta * reciprocal_of_scale(rescale);
      ptx::mbarrier_arrive(&shared.made[k]);
    }
    // The places from `active` on have finished columns: their products with v.
    const int active = first + kCols - k;
    if (has_t && lane % kGroup == 0 && group >= active)
      coupling[k * kMaxClusterTWidth + first + group - active] = reflector.inverse * part;
    float x[kRowsPerLane], x_top[kTopItems];
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) x_top[s] = top[0][s];
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) x[r] = a[0][r];
    apply_reflector<1>(a, top, k, active, scalars, x, x_top, sums, pivot_row);
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) top[kCols - 1][s] = reflector.inverse * x_top[s];
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) a[kCols - 1][r] = reflector.inverse * x[r];
  }

  // v is vscale times the published column.
  const auto vscale_of = [&](int k) { return shared.reflectors[k].inverse * shared.reflectors[k].rescale; };

  // The products of later reflectors with this warp's.
  if (has_t) {
    for (int k = first + count; k < width; ++k) {
      ptx::mbarrier_wait_first_phase(&shared.published[k]);
      ptx::mbarrier_wait_first_phase(&shared.made[k]);
      float v[kRowsPerLane], v_top[kTopItems], parts[kCols];
      load_column(k, v, v_top);
      const float vscale = vscale_of(k);
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) v[r] *= vscale;
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) v_top[s] = rank == 0 && lane + 32 * s > k ? vscale * v_top[s] : 0.0f;
#pragma unroll
      for (int c = 0; c < kCols; ++c) parts[c] = dot(v, v_top, a[c], top[c]);
      part = transposed_sum(parts, lane);
      if (lane % kGroup == 0) coupling[k * kMaxClusterTWidth + first + group] = part;
    }
    ptx::cluster_arrive();  // before the writes to global memory, for which it would wait
  }

  // The warp's columns go out by rows, from the published columns: R above the pivots, V below.
  __syncwarp();
  {
    float* const target = h + matrix * matrix_stride + first;
    float vscale[kCols], unscale[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      vscale[c] = vscale_of(min(first + c, width - 1));
      unscale[c] = reciprocal_of_scale(shared.scale[first + c]);
    }
    const float* const column = columns + first * kPitch;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      float v[4][kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float4 item = {};
        if (c < count) item = *reinterpret_cast<const float4*>(column + c * kPitch + kTop + 4 * (lane + 32 * i));
        v[0][c] = item.x * vscale[c];
        v[1][c] = item.y * vscale[c];
        v[2][c] = item.z * vscale[c];
        v[3][c] = item.w * vscale[c];
      }
      const int row = rest_row + 4 * (lane + 32 * i);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (row + q < rows) store_row<kCols>(target + (row + q) * row_stride, count, vectors, v[q]);
      }
    }
    if (rank == 0) {
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) {
        const int row = lane + 32 * s;
        float values[kCols];
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          const int k = first + c;
          const float value = c < count ? column[c * kPitch + row] : 0.0f;
          values[c] = row > k ? value * vscale[c] : unscale[c] * (row < k ? value : shared.beta[k]);
        }
        if (row < width) store_row<kCols>(target + row * row_stride, count, vectors, values);
      }
      if (lane < count) tau_out[matrix * width + first + lane] = shared.reflectors[first + lane].tau;
    }
  }

  if (has_t) {
    ptx::cluster_wait();
    if (rank == 0) {
      // With the 1 of v_k: coupling[k·pitch + i] = tau_i·G(i, k).
      constexpr int pitch = kMaxClusterTWidth;
      const uint32_t parts = ptx::shared_address(coupling);
      for (int index = threadIdx.x; index < pitch * pitch / 4; index += blockDim.x) {
        const int k = index / (pitch / 4), i = index % (pitch / 4) * 4;
        float row[4] = {};
        if (k < width && i < k) {
#pragma unroll 8
          for (int peer = 0; peer < ctas; ++peer) {
            const float4 part = ptx::load_from_cluster(ptx::map_to_rank(parts + 16 * index, peer));
            row[0] += part.x;
            row[1] += part.y;
            row[2] += part.z;
            row[3] += part.w;
          }
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            row[q] = i + q < k
                         ? shared.reflectors[i + q].tau * fmaf(columns[(i + q) * kPitch + k], vscale_of(i + q), row[q])
                         : 0.0f;
          }
        }
        *reinterpret_cast<float4*>(coupling + 4 * index) = {row[0], row[1], row[2], row[3]};
      }
      __syncthreads();
    }
  }
  ptx::cluster_arrive_relaxed();
  if (has_t) {
    const int pitch = static_cast<int>(reflector_pitch(width)), warps = blockDim.x / 32;
    const int below_top = min(32 * kRowsPerLane, rows - rest_row);
    __half* const halves = halves_out + matrix * rows * 2 * pitch;
    for (int k = lane; k < pitch; k += 32) {
      const bool inside = k < width;
      const float vscale = inside ? vscale_of(k) : 0.0f;
      const float* const column = columns + min(k, width - 1) * kPitch;
#pragma unroll 4
      for (int row = warp; row < below_top; row += warps) {
        store_halves(halves + int64_t{rest_row + row} * 2 * pitch + k, pitch,
                     inside ? vscale * column[kTop + row] : 0.0f);
      }
      if (rank > 0) continue;
      for (int row = warp; row < width; row += warps) {
        store_halves(halves + row * 2 * pitch + k, pitch,
                     !inside || row < k ? 0.0f
                     : row == k         ? 1.0f
                                        : vscale * column[row]);
      }
    }
    if (rank == 0) {
      __syncthreads();
      t_from_coupling<kMaxClusterTWidth>([&](int k) { return shared.reflectors[k].tau; }, coupling, nullptr, width,
                                         t_out + matrix * width * width);
    }
  }
  ptx::cluster_wait();
#endif
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_
