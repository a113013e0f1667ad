// Cluster-regime panel factorization: the CTAs of a thread-block cluster share one panel, each with a part of its rows
// in the registers of its warps.
//
// Ownership. The first `width` rows, those of the pivots, are the top: every CTA has a copy and updates it with the
// same instructions on the same numbers, so that pivots and their rows need no exchange; CTA 0 alone counts it in sums
// and writes it. Of the rows below, CTA r has 32·kRowsPerLane from r·32·kRowsPerLane on. In every CTA warp w owns
// columns w·kCols …; each lane has rows lane + 32·s of the top, s < kTopItems, and of the rest rows 4·(lane + 32·i) + q
// for item i < kRowsPerLane/4 and q < 4. Rows and columns past the panel are zeros. Columns go out as they were
// published; what registers hold of them from then on does not count.
//
// One reduction and one exchange for two neighbouring reflectors, of the raw columns x and y as in panel_columns.cuh.
// The owner of the columns k and k + 1 publishes them to the other warps of its CTA through shared memory, before its
// own sums, so that the next warp is not far behind. Every warp sums x·c and y·c for its columns c over the rows of its
// CTA, sends the sums to the same warp of every CTA (its own included), and adds what all sent in the order of their
// ranks. So the same warp of every CTA has the same bits. From the owner's own columns it alone makes beta and tau, and
// tells the other warps of its CTA. (Made by every warp from a sum of its own, they cost 7 to 12% of the time on an
// H200.)
//
// What the second reflector needs are sums of y' = y - x·ω, for the ω by which the first one changes y, with columns
// that it has changed too: y'·c' = y·c - ω_c·x·y - ω·(x·c - ω_c·x²). That is as good as a sum of its own where y' is
// not much shorter than y and x·ω. Where it is, or either tail is tiny, all warps apply the first reflector and take
// the second one's sums by an exchange of their own.
//
// Synchronization. Within a CTA two mbarriers for two columns, each used once: the columns are published, with an
// arrival by every lane, and their scalars are made; and a third where the second column's scalars come later. Between
// CTAs two mbarriers and two buffers a warp, in turn for its exchanges; a phase ends when all bytes have come
// (st.async). Two suffice: a warp sends exchange e + 2 after it has received e + 1 from every CTA, and each sent that
// after it had read all of e. A warp waits for columns of smaller index, and for exchanges that all CTAs enter
// unconditionally or by a decision on bits that they share: every wait ends whatever the data are (NaN included). The
// CTAs of a cluster are resident together, and none leaves before all have read what it holds.
//
// Range, NaN, signs and tau as in panel_columns.cuh, but for tau of a second reflector, which is made from v. That
// takes an exchange at the end, the maxima for the columns' scales one at the beginning, and for a tiny tail Σx² <
// 2^-80 its maximum and the repeated sums one each.
//
// Resources. About (kRowsPerLane + kTopItems)·(kCols + 2) data registers a lane; the CTA's rows and the top of width
// columns in shared memory.
#ifndef JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_
#define JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_

#include <cstdint>
#include <type_traits>

#include "cluster_panel.h"
#include "cluster_ptx.cuh"
#include "ptx.cuh"
#include "reflector.cuh"
#include "warp.cuh"

namespace jaxqr {

inline constexpr int kMaxClusterCtas = 16;

// What the owner of a column x tells the warps that apply its reflector: v = (x·rescale)·inverse below the pivot, and
// c ← c - tau·(v·c)·v is c - neg_inverse_beta·(v·c)·(x·rescale) there.
struct __align__(16) ReflectorScalars {
  float tau, inverse, neg_inverse_beta, rescale;
};

// What the owner tells of two neighbouring columns x and y beside both reflectors.
struct __align__(16) PairScalars {
  float projection;    // v·y of the first reflector
  float x_square, xy;  // sums below both pivots
  bool together;       // whether the second reflector is made from these sums
};

// The share of y² and (x·ω)² that y'² has at least if both reflectors are made together.
inline constexpr float kLeastShare = 0.125f;

// A smaller Σx² of a tail is taken again in another scale.
inline constexpr float kTinySquare = 0x1p-80f;

template <int kCols, int kMaxWarps>
struct __align__(16) ClusterShared {
  static constexpr int kMaxWidth = kCols * kMaxWarps;
  ReflectorScalars reflectors[kMaxWidth];
  PairScalars pairs[kMaxWidth / 2];
  uint64_t published[kMaxWidth / 2], made[kMaxWidth], exchanged[2][kMaxWarps];  // mbarriers
  float beta[kMaxWidth], scale[kMaxWidth];
  float received[2][kMaxWarps][kMaxClusterCtas][2 * kCols], sent[2][kMaxWarps][2 * kCols];
  // Of a warp's columns: the elements in two pivots' rows, and the projections of both reflectors.
  float pivot_rows[kMaxWarps][2][kCols];
  float2 projections[kMaxWarps][kCols];
};

// Columns lie this far apart in shared memory: float4 aligned, and neighbouring columns in different banks.
__host__ __device__ constexpr int cluster_pitch(int top_items, int rows_per_lane) {
  return 32 * (top_items + rows_per_lane) + 4;
}

// Dynamic shared memory: the above, and the columns [width, cluster_pitch], top first.
template <int kCols, int kMaxWarps>
constexpr int cluster_shared_bytes(int rows_per_lane, int width) {
  const int top_items = (kCols * kMaxWarps + 31) / 32;
  return static_cast<int>(sizeof(ClusterShared<kCols, kMaxWarps>)) +
         4 * cluster_pitch(top_items, rows_per_lane) * width;
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
template <int kPitch, typename Combine>
__device__ __forceinline__ float combine_ranks(const float* values, int ctas, Combine combine) {
  const auto two = [&](int rank) { return combine(values[rank * kPitch], values[(rank + 1) * kPitch]); };
  const auto four = [&](int rank) { return combine(two(rank), two(rank + 2)); };
  if (ctas == 2) return two(0);
  float value = four(0);
  if (ctas > 4) value = combine(value, four(4));
  if (ctas > 8) value = combine(value, combine(four(8), four(12)));
  return value;
}

// What reflector k subtracts from the top, for a projection v·c of 1: c_k becomes c_k - tau·(v·c). `x_top` is zero up
// to row k.
template <int kTopItems>
__device__ __forceinline__ void reflector_of_top(int k, const ReflectorScalars& scalars,
                                                 const float (&x_top)[kTopItems], float (&z_top)[kTopItems]) {
#pragma unroll
  for (int s = 0; s < kTopItems; ++s) {
    const bool pivot = static_cast<int>(threadIdx.x % 32) + 32 * s == k;
    z_top[s] = pivot ? scalars.tau : scalars.neg_inverse_beta * x_top[s];
  }
}

// Applies reflector k to a lane's columns from `from` on. `sums`: Σx·c below row k; `pivot_row`: the elements c_k.
template <int kRowsPerLane, int kCols, int kTopItems>
__device__ __forceinline__ void apply_reflector(float (&a)[kCols][kRowsPerLane], float (&top)[kCols][kTopItems], int k,
                                                int from, const ReflectorScalars& scalars,
                                                const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                                                const float (&sums)[kCols], const float (&pivot_row)[kCols]) {
  float z_top[kTopItems];
  reflector_of_top(k, scalars, x_top, z_top);
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    if (c < from) continue;
    const float projection = fmaf(scalars.inverse, sums[c], pivot_row[c]);  // v·c
    const float coefficient = scalars.neg_inverse_beta * projection;
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) top[c][s] = fmaf(-projection, z_top[s], top[c][s]);
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) a[c][r] = fmaf(-coefficient, x[r], a[c][r]);
  }
}

// y becomes what the first reflector makes of it by its projection v·y.
template <int kRowsPerLane, int kTopItems>
__device__ __forceinline__ void apply_to_second(int k, const ReflectorScalars& scalars, float projection,
                                                const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                                                float (&y)[kRowsPerLane], float (&y_top)[kTopItems]) {
  float z_top[kTopItems];
  reflector_of_top(k, scalars, x_top, z_top);
  const float coefficient = scalars.neg_inverse_beta * projection;
#pragma unroll
  for (int s = 0; s < kTopItems; ++s) y_top[s] = fmaf(-projection, z_top[s], y_top[s]);
#pragma unroll
  for (int r = 0; r < kRowsPerLane; ++r) y[r] = fmaf(-coefficient, x[r], y[r]);
}

// Of the second of two reflectors: y'·c' below its row, for what the first one makes of y and, by its projection, of c.
__device__ __forceinline__ float second_sum(float neg_inverse_beta, const PairScalars& pair, float projection, float xc,
                                            float yc) {
  const float of_y = neg_inverse_beta * pair.projection, of_c = neg_inverse_beta * projection;
  return fmaf(-of_y, fmaf(-of_c, pair.x_square, xc), fmaf(-of_c, pair.xy, yc));
}

// Applies reflectors k and k + 1, as apply_reflector does one, by their projections, and calls done(c) as soon as the
// columns c and c + 1 are. `x_top` is zero up to row k; `y` and `y_top` are what the first reflector makes of y, the
// latter zero up to row k + 1.
template <int kRowsPerLane, int kCols, int kTopItems, typename Done>
__device__ __forceinline__ void apply_pair(float (&a)[kCols][kRowsPerLane], float (&top)[kCols][kTopItems], int k,
                                           int from, const ReflectorScalars& first, const ReflectorScalars& second,
                                           const float2 (&projections)[kCols], const float (&x)[kRowsPerLane],
                                           const float (&x_top)[kTopItems], const float (&y)[kRowsPerLane],
                                           const float (&y_top)[kTopItems], Done done) {
  float x_part[kTopItems], y_part[kTopItems];
  reflector_of_top(k, first, x_top, x_part);
  reflector_of_top(k + 1, second, y_top, y_part);
#pragma unroll
  for (int c = 0; c < kCols; c += 2) {
    if (c < from) continue;
    const float4 both = *reinterpret_cast<const float4*>(&projections[c]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_x = i == 0 ? both.x : both.z, of_y = i == 0 ? both.y : both.w;
      const float x_coefficient = first.neg_inverse_beta * of_x, y_coefficient = second.neg_inverse_beta * of_y;
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) top[c + i][s] = fmaf(-of_y, y_part[s], fmaf(-of_x, x_part[s], top[c + i][s]));
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r)
        a[c + i][r] = fmaf(-y_coefficient, y[r], fmaf(-x_coefficient, x[r], a[c + i][r]));
    }
    done(c);
  }
}

// `vectors`: rows of src and h are float4-aligned. Grid: batch·ctas CTAs in clusters of `ctas`.
template <int kRowsPerLane, int kCols, int kMaxWarps>
__global__ void __launch_bounds__(32 * kMaxWarps, 1)
    cluster_panel_kernel(const float* src, float* h, float* tau_out, int64_t matrix_stride, int64_t row_stride,
                         int rows, int width, int ctas, bool vectors) {
#if __CUDA_ARCH__ >= 900
  using Shared = ClusterShared<kCols, kMaxWarps>;
  constexpr int kTopItems = (Shared::kMaxWidth + 31) / 32;
  constexpr int kItems = kRowsPerLane / 4;
  constexpr int kTop = 32 * kTopItems;                                        // rows of the top, in shared memory
  constexpr int kPitch = cluster_pitch(kTopItems, kRowsPerLane);              // of a column in shared memory
  constexpr int kChains = kRowsPerLane <= 4 ? 1 : kRowsPerLane <= 8 ? 2 : 4;  // as in panel_columns.cuh
  static_assert(kRowsPerLane % 4 == 0, "float4 items");
  static_assert(kCols == 4 || kCols == 8, "float4 rows, a power of two of sums");

  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  float* const columns = reinterpret_cast<float*>(shared_memory + sizeof(Shared));

  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);  // known to be uniform
  const int rank = ptx::cluster_rank();
  const int64_t matrix = blockIdx.x / ctas;
  const int first = warp * kCols, count = min(kCols, width - first);  // this warp's columns
  const int rest_row = width + rank * (32 * kRowsPerLane);            // of the panel, the CTA's first below the top

  for (int k = threadIdx.x; k < width; k += blockDim.x) {
    if (k % 2 == 0) ptx::mbarrier_init(&shared.published[k / 2], 32);
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

  // The exchange of one or two values a column, each of a group of lanes. They go out by quads, one a lane: the network
  // takes as long for a quad as for one value.
  using One = std::integral_constant<int, 32 / kCols>;
  using Two = std::integral_constant<int, One::value / 2>;
  constexpr int kExchangePitch = 2 * kCols;
  const uint32_t received_bytes = sizeof(shared.received[0]), barrier_bytes = sizeof(shared.exchanged[0]);
  const uint32_t barrier = ptx::shared_address(&shared.exchanged[0][warp]);
  const uint32_t place = ptx::shared_address(&shared.received[0][warp][rank][0]);
  int exchanges = 0;
  const auto send = [&](auto group, float value) {
    constexpr int kLanes = decltype(group)::value, kQuads = 32 / kLanes / 4;
    const uint32_t buffer = exchanges & 1;
    float* const values = shared.sent[buffer][warp];
    if (lane % kLanes == 0) values[lane / kLanes] = value;
    __syncwarp();  // and all lanes have read the exchange before the last
    const int peer = lane / kQuads, quad = lane % kQuads;
    const float4 values_of_quad = *reinterpret_cast<const float4*>(values + 4 * quad);
    const uint32_t own_place = place + buffer * received_bytes + 16 * quad,
                   own_barrier = barrier + buffer * barrier_bytes;
    const auto send_to = [&](int peer) {
      ptx::store_async(ptx::map_to_rank(own_place, peer), values_of_quad, ptx::map_to_rank(own_barrier, peer));
    };
    if (peer < ctas) send_to(peer);
    if (kQuads * kMaxClusterCtas > 32 && ctas > 32 / kQuads) send_to(peer + 32 / kQuads);
  };
  // Of what all CTAs' lanes of the same group sent.
  const auto receive = [&](auto group, auto combine) {
    constexpr int kLanes = decltype(group)::value;
    const uint32_t buffer = exchanges & 1;
    if (lane == 0)
      ptx::mbarrier_arrive_expect_bytes(barrier + buffer * barrier_bytes, 32 / kLanes * ctas * sizeof(float));
    ptx::mbarrier_wait_cluster(barrier + buffer * barrier_bytes, exchanges >> 1 & 1);
    ++exchanges;
    return combine_ranks<kExchangePitch>(&shared.received[buffer][warp][0][lane / kLanes], ctas, combine);
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
      if (lane / One::value == c) mine = magnitude;
    }
    send(One{}, mine);
    const float magnitude = receive(One{}, larger), scale = power_of_two_scale(magnitude);
    if (lane % One::value == 0) {
      shared.scale[first + lane / One::value] = scale;
      shared.beta[first + lane / One::value] = magnitude;  // until the reflector is made
    }
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const float factor = __shfl_sync(kFullWarp, scale, c * One::value);
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
  // Of a column's top, the rows below k.
  const auto below = [&](int k, const float (&values)[kTopItems], float (&masked)[kTopItems]) {
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) masked[s] = lane + 32 * s > k ? values[s] : 0.0f;
  };
  const auto counted_below = [&](int k, const float (&values)[kTopItems], float (&counted)[kTopItems]) {
    below(rank == 0 ? k : kTop, values, counted);
  };
  const auto rescaled = [](float rescale, float (&x)[kRowsPerLane], float (&x_top)[kTopItems]) {
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) x_top[s] *= rescale;
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) x[r] *= rescale;
  };
  // The sums x·c for this warp's columns c over the rows below k, and the elements c_k, in every lane. Returns the sum
  // of the lane's column.
  const auto take_sums = [&](int k, const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                             float (&sums)[kCols], float (&pivot_row)[kCols]) {
    float counted[kTopItems], parts[kCols];
    counted_below(k, x_top, counted);
#pragma unroll
    for (int c = 0; c < kCols; ++c) parts[c] = dot(x, counted, a[c], top[c]);
    send(One{}, transposed_sum(parts, lane));
#pragma unroll
    for (int c = 0; c < kCols; ++c) pivot_row[c] = pivot_of(top[c], k);
    const float sum = receive(One{}, add);
#pragma unroll
    for (int c = 0; c < kCols; ++c) sums[c] = __shfl_sync(kFullWarp, sum, c * One::value);
    return sum;
  };
  // The same for the columns x and y of the pivots k and k + 1, below both, a sum a lane: those of x in its first half,
  // those of y in the second. The elements in both rows are left in shared memory. Columns before `from` are finished.
  float (&pivot_rows)[2][kCols] = shared.pivot_rows[warp];
  struct PairSums {
    float sum, row, next_row;        // of the lane's column
    float2 pivot_row, pivots_below;  // of the columns `from` and the next one
  };
  const auto take_pair_sums = [&](int k, int from, const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems],
                                  const float (&y)[kRowsPerLane], const float (&y_top)[kTopItems]) -> PairSums {
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) {
      const int pivot = lane + 32 * s - k;
      if (pivot != 0 && pivot != 1) continue;
#pragma unroll
      for (int c = 0; c < kCols; c += 4)
        *reinterpret_cast<float4*>(&pivot_rows[pivot][c]) = {top[c][s], top[c + 1][s], top[c + 2][s], top[c + 3][s]};
    }
    float x_counted[kTopItems], y_counted[kTopItems], parts[2 * kCols] = {};
    counted_below(k + 1, x_top, x_counted);
    counted_below(k + 1, y_top, y_counted);
#pragma unroll
    for (int c = 0; c < kCols; c += 2) {
      if (c < from) continue;
#pragma unroll
      for (int i = c; i < c + 2; ++i) {
        parts[i] = dot(x, x_counted, a[i], top[i]);
        parts[kCols + i] = dot(y, y_counted, a[i], top[i]);
      }
    }
    send(Two{}, transposed_sum(parts, lane));
    const int own = lane % 16 / Two::value;
    PairSums sums = {0.0f, pivot_rows[0][own], pivot_rows[1][own],
                     *reinterpret_cast<const float2*>(&pivot_rows[0][from]),
                     *reinterpret_cast<const float2*>(&pivot_rows[1][from])};
    sums.sum = receive(Two{}, add);
    return sums;
  };
  // Both reflectors' projections on all columns, each by the lanes that have a sum of it; left in shared memory.
  float2(&projections)[kCols] = shared.projections[warp];
  const auto project = [&](const PairSums& sums, const ReflectorScalars& one, const ReflectorScalars& two,
                           const PairScalars& pair, float x_next) {
    const float other = __shfl_xor_sync(kFullWarp, sums.sum, 16), xc = lane < 16 ? sums.sum : other,
                yc = lane < 16 ? other : sums.sum;
    const float projection = fmaf(one.inverse, fmaf(x_next, sums.next_row, xc), sums.row);
    const float next = fmaf(-projection, one.neg_inverse_beta * x_next, sums.next_row);
    const float sum_of_second = second_sum(one.neg_inverse_beta, pair, projection, xc, yc);
    if (lane < 16 && lane % Two::value == 0)
      projections[lane / Two::value] = {projection, fmaf(two.inverse, sum_of_second, next)};
    __syncwarp();
  };
  // What take_sums(k) gives, from these sums.
  const auto sums_of_first = [&](float sum, float x_next, float (&sums)[kCols], float (&pivot_row)[kCols]) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      sums[c] = fmaf(x_next, pivot_rows[1][c], __shfl_sync(kFullWarp, sum, c * Two::value));
      pivot_row[c] = pivot_rows[0][c];
    }
  };

  const auto publish = [&](int k, const float (&x)[kRowsPerLane], const float (&x_top)[kTopItems]) {
    float* const column = columns + k * kPitch;
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      *reinterpret_cast<float4*>(column + kTop + 4 * (lane + 32 * i)) = {x[4 * i], x[4 * i + 1], x[4 * i + 2],
                                                                         x[4 * i + 3]};
#pragma unroll
    for (int s = 0; s < kTopItems; ++s) column[lane + 32 * s] = x_top[s];
  };
  // This warp's columns k and k + 1, if they are its columns c and c + 1.
  const auto publish_if = [&](int k, int c) {
    if (k != first + c || c >= count) return;
    publish(k, a[c], top[c]);
    if (c + 1 < count) publish(k + 1, a[c + 1], top[c + 1]);
    ptx::mbarrier_arrive(&shared.published[k / 2]);
  };
  const auto keep_made = [&](int k, const Reflector& reflector, float rescale) {
    const ReflectorScalars scalars = {reflector.tau, reflector.inverse, reflector.neg_inverse_beta, rescale};
    if (lane == 0) {
      shared.reflectors[k] = scalars;
      shared.beta[k] = reflector.beta * reciprocal_of_scale(rescale);
    }
    return scalars;
  };

  publish_if(0, 0);
  for (int k = 0; k < first + count; k += 2) {
    const bool own = k >= first, has_second = k + 1 < width;
    const int finished = own ? k - first : 0, from = own ? finished + 2 : 0;  // of this warp's columns
    ptx::mbarrier_wait_first_phase(&shared.published[k / 2]);
    float x[kRowsPerLane], x_top[kTopItems], y[kRowsPerLane], y_top[kTopItems];
    load_column(k, x, x_top);
    load_column(min(k + 1, width - 1), y, y_top);
    const float x_next = columns[k * kPitch + k + 1];
    const PairSums pair_sums = take_pair_sums(k, finished, x, x_top, y, y_top);
    if constexpr (kRowsPerLane * kCols > 64) load_column(min(k + 1, width - 1), y, y_top);  // not kept in registers
    below(k, x_top, x_top);

    const auto of_column = [&](int lanes, float sum, int column) {
      return __shfl_sync(kFullWarp, sum, (column - first) * lanes);
    };
    PairScalars pair;
    ReflectorScalars one, two;
    float alpha = pair_sums.pivot_row.x, square, xy;  // of the columns k and k + 1 below row k
    if (own) {
      const float x_square = of_column(Two::value, pair_sums.sum, k),
                  xy_below = of_column(Two::value, pair_sums.sum, k + 1),
                  y_square = of_column(Two::value, pair_sums.sum, k + 1 + kCols);
      square = fmaf(x_next, x_next, x_square);
      xy = fmaf(x_next, pair_sums.pivots_below.y, xy_below);
      Reflector reflector = make_reflector(alpha, square);
      float rest;  // of the second column
      const auto pair_up = [&] {
        pair = {fmaf(reflector.inverse, xy, pair_sums.pivot_row.y), x_square, xy_below};
        const float coefficient = reflector.neg_inverse_beta * pair.projection;
        rest = second_sum(reflector.neg_inverse_beta, pair, pair.projection, xy_below, y_square);
        return kLeastShare * fmaxf(y_square, coefficient * coefficient * x_square);
      };
      const float least = pair_up();
      const auto keep_pair = [&](bool zero_y) {
        const float next_alpha = fmaf(-pair.projection, reflector.neg_inverse_beta * x_next, pair_sums.pivots_below.y);
        one = keep_made(k, reflector, 1.0f);
        Reflector next_reflector = make_reflector(next_alpha, rest);
        if (zero_y) next_reflector = {next_alpha, 0.0f, 0.0f, 0.0f};
        two = keep_made(k + 1, next_reflector, 1.0f);
        if (lane == 0) {
          shared.pairs[k / 2] = pair;
          ptx::mbarrier_arrive(&shared.made[k]);
        }
      };
      pair.together = has_second && square >= kTinySquare && rest >= least && rest >= kTinySquare;
      if (__builtin_expect(pair.together, true)) {
        keep_pair(false);
      } else if (has_second) {
        // Columns of zeros stay zeros, and need no other scale.
        const auto is_zero = [&](int column, float sum) { return sum == 0.0f && shared.beta[column] == 0.0f; };
        const bool zero_x = is_zero(k, square), zero_y = is_zero(k + 1, y_square);
        __syncwarp();  // before the magnitudes are written over
        if (zero_x) {
          reflector = {alpha, 0.0f, 0.0f, 0.0f};
          pair_up();
        }
        pair.together = (zero_x || square >= kTinySquare) && (zero_y || (zero_x && rest >= kTinySquare));
        if (pair.together) keep_pair(zero_y);
      }
    } else {
      ptx::mbarrier_wait_first_phase(&shared.made[k]);
      pair = shared.pairs[k / 2];
      one = shared.reflectors[k];
      if (pair.together) two = shared.reflectors[k + 1];
    }
    if (__builtin_expect(pair.together, true)) {
      project(pair_sums, one, two, pair, x_next);
      apply_to_second(k, one, pair.projection, x, x_top, y, y_top);
      below(k + 1, y_top, y_top);
      apply_pair(a, top, k, from, one, two, projections, x, x_top, y, y_top, [&](int c) { publish_if(k + 2, c); });
      continue;
    }

    // One at a time; a tiny tail, and its sums, again in another scale.
    float sums[kCols], pivot_row[kCols];
    sums_of_first(pair_sums.sum, x_next, sums, pivot_row);
#pragma unroll 1
    for (int column = k; column < k + 1 + has_second; ++column) {
      const auto take = [&] {
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          if (first + c != column) continue;  // its own column is still as it was published
#pragma unroll
          for (int s = 0; s < kTopItems; ++s) top[c][s] = x_top[s];
#pragma unroll
          for (int r = 0; r < kRowsPerLane; ++r) a[c][r] = x[r];
        }
        const float sum = take_sums(column, x, x_top, sums, pivot_row);
        square = of_column(One::value, sum, max(column, first));
        xy = of_column(One::value, sum, max(k + 1, first));
      };
      if (column > k) take();
      if (own) {
        float rescale = 1.0f;
        bool zero_tail = false;
        if (square < kTinySquare) {
          float magnitude = 0.0f;
#pragma unroll
          for (int s = 0; s < kTopItems; ++s) magnitude = fmaxf(magnitude, fabsf(x_top[s]));
#pragma unroll
          for (int r = 0; r < kRowsPerLane; ++r) magnitude = fmaxf(magnitude, fabsf(x[r]));
          send(One{}, group_max<32>(magnitude));
          magnitude = receive(One{}, larger);
          zero_tail = magnitude == 0.0f || fmaxf(magnitude, fabsf(alpha)) < kNegligibleTail;
          if (!zero_tail) rescale = power_of_two_scale(fmaxf(magnitude, fabsf(alpha)));
          if (rescale != 1.0f) {
            rescaled(rescale, x, x_top);
            take();
          }
        }
        Reflector reflector = make_reflector(alpha * rescale, square);
        if (zero_tail) reflector = {alpha, 0.0f, 0.0f, 0.0f};
        one = keep_made(column, reflector, rescale);
        if (column == k) pair = {fmaf(one.inverse, xy, pair_sums.pivot_row.y), 0.0f, 0.0f, false};
        if (lane == 0) {
          if (column == k) shared.pairs[k / 2] = pair;
          ptx::mbarrier_arrive(&shared.made[column]);
        }
      } else {
        ptx::mbarrier_wait_first_phase(&shared.made[column]);
        one = shared.reflectors[column];
        if (one.rescale != 1.0f) {
          rescaled(one.rescale, x, x_top);
          take();
        }
      }
      apply_reflector(a, top, column, from, one, x, x_top, sums, pivot_row);
      // The second column comes next. (After it what follows is of no use.)
      apply_to_second(column, one, pair.projection, x, x_top, y, y_top);
      alpha = pivot_of(y_top, column + 1);
      below(column + 1, y_top, x_top);
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) x[r] = y[r];
    }
#pragma unroll
    for (int c = 0; c < kCols; c += 2) publish_if(k + 2, c);
  }

  // v is vscale times the published column, of the second of two columns after the first reflector.
  const auto vscale_of = [&](int k) { return shared.reflectors[k].inverse * shared.reflectors[k].rescale; };

  // The warp's columns go out by rows, from the published columns: R above the pivots, V below. A second reflector is
  // orthogonal to a rounding error of y'², which is as much larger than one of y² as y' is shorter than y. So its tau
  // goes out as that of the v that it has: then Q is orthogonal, and R is off by no more than the error.
  __syncwarp();
  {
    float* const target = h + matrix * matrix_stride + first;
    float vscale[kCols], unscale[kCols], squares[kCols] = {};  // of second columns: Σv²
    ReflectorScalars scalars[kCols / 2];                       // of the first of two columns
    float projection[kCols / 2];
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int k = min(first + c, width - 1);
      vscale[c] = vscale_of(k);
      unscale[c] = reciprocal_of_scale(shared.scale[first + c]);
      if (c % 2 == 1) continue;
      scalars[c / 2] = shared.reflectors[k];
      projection[c / 2] = shared.pairs[k / 2].projection;
    }
    const float* const column = columns + first * kPitch;
#pragma unroll 1
    for (int i = 0; i < kItems; ++i) {
      float v[4][kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        float4 item = {};
        if (c < count) item = *reinterpret_cast<const float4*>(column + c * kPitch + kTop + 4 * (lane + 32 * i));
        v[0][c] = item.x;
        v[1][c] = item.y;
        v[2][c] = item.z;
        v[3][c] = item.w;
      }
      const int row = rest_row + 4 * (lane + 32 * i);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int c = 0; c < kCols; c += 2) {
          const ReflectorScalars& one = scalars[c / 2];
          const float coefficient = one.neg_inverse_beta * projection[c / 2];
          v[q][c + 1] = fmaf(-coefficient, one.rescale * v[q][c], v[q][c + 1]) * vscale[c + 1];
          v[q][c] *= vscale[c];
        }
        if (row + q < rows) store_row<kCols>(target + (row + q) * row_stride, count, vectors, v[q]);
      }
#pragma unroll
      for (int c = 1; c < kCols; c += 2)
        squares[c] += fmaf(v[0][c], v[0][c], v[1][c] * v[1][c]) + fmaf(v[2][c], v[2][c], v[3][c] * v[3][c]);
    }
    if (rank == 0) {
#pragma unroll
      for (int s = 0; s < kTopItems; ++s) {
        const int row = lane + 32 * s;
        float values[kCols];
#pragma unroll
        for (int c = 0; c < kCols; ++c) values[c] = c < count ? column[c * kPitch + row] : 0.0f;
#pragma unroll
        for (int c = 0; c < kCols; c += 2) {
          const ReflectorScalars& one = scalars[c / 2];
          const int k = first + c;
          const float x = row > k ? one.rescale * values[c] : 0.0f, z = row == k ? one.tau : one.neg_inverse_beta * x;
          values[c + 1] = fmaf(-projection[c / 2], z, values[c + 1]);
        }
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          const int k = first + c;
          values[c] = row > k ? values[c] * vscale[c] : unscale[c] * (row < k ? values[c] : shared.beta[k]);
          if (c % 2 == 1 && row > k) squares[c] = fmaf(values[c], values[c], squares[c]);
        }
        if (row < width) store_row<kCols>(target + row * row_stride, count, vectors, values);
      }
    }
    send(One{}, transposed_sum(squares, lane));
    const float square = receive(One{}, add);
    const int c = lane / One::value, k = first + c;
    if (rank == 0 && lane % One::value == 0 && c < count) {
      const float tau = shared.reflectors[k].tau;
      const bool remade = c % 2 == 1 && shared.pairs[k / 2].together && tau != 0.0f;
      tau_out[matrix * width + k] = remade ? 2.0f / (1.0f + square) : tau;
    }
  }

  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
#endif
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_CLUSTER_PANEL_KERNEL_CUH_
