// Launches of the block-reflector update: by which kernel, how many CTAs share the rows of a strip, and the tensor
// copies' descriptions of V and C.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>

#include "block_reflector.h"
#include "block_reflector_bulk_kernel.cuh"
#include "block_reflector_kernel.cuh"
#include "scales.h"
#include "two_block_reflectors_kernel.cuh"

namespace jaxqr {
namespace {

using namespace update;

constexpr int64_t kMaxGrid = 0x7fffffff;

// Describes a row-major array to the tensor copies: sizes and boxes from the last dimension on, strides in bytes.
template <int kRank>
bool make_map(CUtensorMap* map, CUtensorMapDataType type, const void* base, const std::array<int64_t, kRank>& sizes,
              const std::array<int64_t, kRank - 1>& strides, const std::array<unsigned, kRank>& box,
              CUtensorMapSwizzle swizzle) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function) : nullptr;
  }();
  cuuint64_t map_sizes[kRank], map_strides[kRank - 1];
  cuuint32_t steps[kRank];
  std::copy(sizes.begin(), sizes.end(), map_sizes);
  std::copy(strides.begin(), strides.end(), map_strides);
  std::fill_n(steps, kRank, 1);
  return encode != nullptr && encode(map, type, kRank, const_cast<void*>(base), map_sizes, map_strides, box.data(),
                                     steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// What every launch of an update is given.
struct Arguments {
  const BlockReflectorShape& shape;
  float* h;
  const __half* halves;
  const float* t;
  bool transpose;
  float* scales;
  bool make_scales, remake_scales;
  const float* src;
  cudaStream_t stream;

  int64_t rows() const { return shape.m - shape.offset; }
  int64_t columns() const { return shape.last - shape.first; }
  int64_t strips() const { return (columns() + kStrip - 1) / kStrip; }
  int64_t matrix_stride() const { return shape.m * shape.n; }
  int64_t corner() const { return shape.offset * shape.n + shape.offset; }
  int64_t pitch() const { return reflector_pitch(shape.width); }
  // Where all is known, whole strips are.
  int64_t known() const { return shape.all_known() ? strips() * kStrip : shape.known; }
};

// Launches `kernel` for as many matrices as a grid holds at a time, with what arguments(first, count) has for these.
template <typename... Parameters, typename MakeArguments>
cudaError_t launch(void (*kernel)(Parameters...), int threads, int shared_bytes, int64_t shares, const Arguments& a,
                   MakeArguments arguments, int64_t most_clusters = kMaxGrid) {
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess)
    return error;
  const int64_t matrices = kMaxGrid / a.strips();  // of one launch
  for (int64_t batch = 0; batch < a.shape.batch; batch += matrices) {
    const int64_t count = std::min(a.shape.batch - batch, matrices);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, static_cast<unsigned>(shares), 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = {static_cast<unsigned>(std::min(count * a.strips(), most_clusters)),
                      static_cast<unsigned>(shares)};
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = a.stream;
    config.attrs = &cluster;
    config.numAttrs = shares > 1 ? 1 : 0;
    std::tuple<Parameters...> parameters;
    if (!arguments(batch, count, parameters)) return cudaErrorInvalidValue;
    const cudaError_t error =
        std::apply([&](const auto&... each) { return cudaLaunchKernelEx(&config, kernel, each...); }, parameters);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <int kWidth, bool kAligned, bool kShared>
cudaError_t launch_copies(const Arguments& a, int64_t shares) {
  const BlockReflectorShape& shape = a.shape;
  return launch(block_reflector_kernel<kWidth, kAligned, kShared>, kThreads, sizeof(Shared<kWidth>), shares, a,
                [&](int64_t batch, int64_t, auto& parameters) {
                  const int64_t corner = batch * a.matrix_stride() + a.corner();
                  parameters = {a.h + corner,
                                a.halves + batch * a.rows() * 2 * a.pitch(),
                                a.t + batch * shape.width * shape.width,
                                a.transpose,
                                a.scales + batch * shape.n + shape.offset,
                                a.make_scales,
                                a.remake_scales,
                                column_scale(shape.m),
                                a.src + corner,
                                a.matrix_stride(),
                                shape.n,
                                static_cast<int>(a.rows()),
                                static_cast<int>(shape.width),
                                static_cast<int>(a.pitch()),
                                static_cast<int>(shape.first - shape.offset),
                                static_cast<int>(a.columns()),
                                static_cast<int>(a.known()),
                                static_cast<int>(a.strips())};
                  return true;
                });
}

// Describes a block reflector's halves from matrix `batch` on.
template <int kWidth>
bool make_map_of_v(CUtensorMap* map, const __half* halves, int64_t width, int64_t rows, int64_t batch, int64_t count) {
  const int64_t pitch = reflector_pitch(width);
  return make_map<4>(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, halves + batch * rows * 2 * pitch, {pitch, 2, rows, count},
                     {2 * pitch, 4 * pitch, 4 * rows * pitch}, {kWidth, 1, kTileRows, 1},
                     kWidth == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
}

bool make_map_of_c(CUtensorMap* map, const float* first, int64_t columns, int64_t rows, int64_t n,
                   int64_t matrix_stride, int64_t count) {
  return make_map<3>(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, first, {columns, rows, count}, {4 * n, 4 * matrix_stride},
                     {kStrip / 2, kTileRows, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
}

template <int kWidth, bool kAligned, bool kShared>
cudaError_t launch_bulk(const Arguments& a, int64_t shares) {
  const BlockReflectorShape& shape = a.shape;
  return launch(block_reflector_bulk_kernel<kWidth, kAligned, kShared, false>, kBulkThreads<kAligned>,
                sizeof(BulkShared<kWidth>), shares, a, [&](int64_t batch, int64_t count, auto& parameters) {
                  const int64_t corner = batch * a.matrix_stride() + shape.offset * shape.n + shape.first;
                  // Where all is the identity's, boxes before an array's beginning bring zeros of any array.
                  const int64_t read_from = shape.all_known() ? 0 : a.known();
                  BulkMaps maps = {};
                  const bool made = (!kAligned || make_map_of_c(&maps.c, a.src + corner + read_from * (shape.n + 1),
                                                                a.columns() - read_from, a.rows() - read_from, shape.n,
                                                                a.matrix_stride(), count)) &&
                                    make_map_of_v<kWidth>(&maps.v, a.halves, shape.width, a.rows(), batch, count);
                  parameters = {a.h + batch * a.matrix_stride() + a.corner(),
                                nullptr,
                                a.t + batch * shape.width * shape.width,
                                a.transpose,
                                a.scales + batch * shape.n + shape.offset,
                                a.make_scales,
                                a.remake_scales,
                                column_scale(shape.m),
                                a.matrix_stride(),
                                static_cast<int>(shape.n),
                                static_cast<int>(a.rows()),
                                static_cast<int>(shape.width),
                                static_cast<int>(shape.first - shape.offset),
                                static_cast<int>(a.columns()),
                                static_cast<int>(a.known()),
                                static_cast<int>(a.strips()),
                                maps,
                                a.src + corner};
                  return made;
                });
}

// How many CTAs share the rows of a strip: as many as take the least time, by the shape and the number of
// multiprocessors only.
cudaError_t plan_shares(const BlockReflectorShape& shape, bool bulk, int64_t* shares) {
  *shares = 1;
  int device, processors, clusters;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  if (error != cudaSuccess || !clusters) return error;
  const int64_t tiles = (shape.m - shape.offset + kTileRows - 1) / kTileRows,
                strips = shape.at_once * shape.batch * ((shape.last - shape.first + kStrip - 1) / kStrip);
  // In the time that a CTA alone on a multiprocessor takes for a tile: what it takes beside its tiles, in clusters of
  // 1, 2, 4 and 8. Two on a multiprocessor, which has room for them of the bulk kernel, take kTogether times as long.
  // Larger clusters leave some multiprocessors empty, whose groups they do not fit, so that some come two to a
  // multiprocessor before all are taken.
  constexpr double kOverhead[2][4] = {{1.6, 2.0, 2.4, 2.6}, {5.3, 6.2, 7.0, 7.6}}, kTogether = 1.65;
  const int resident = bulk ? 2 : 1;
  double least = 0;
  for (int i = 0; i < 4 && (int64_t{1} << i) <= tiles; ++i) {
    const int64_t count = int64_t{1} << i, places = resident * (count > 2 ? processors * 10 / 11 : processors),
                  room = count > 2 ? processors * 3 / 4 : processors, rest = strips * count % places;
    // Whole waves, and what is left after them.
    const double alone = static_cast<double>((tiles + count - 1) / count) + kOverhead[bulk][i],
                 whole = static_cast<double>(strips * count / places) * (bulk ? kTogether : 1.0),
                 last = bulk && rest > room ? kTogether
                        : rest > 0          ? 1.0
                                            : 0.0,
                 time = alone * (whole + last);
    if (count == 1 || time < 0.95 * least) {
      *shares = count;
      least = time;
    }
  }
  return cudaSuccess;
}

// Whether the device runs code that was compiled for Hopper. The runtime is asked once a device.
cudaError_t runs_hopper_code(bool* runs) {
  constexpr int kDevices = 64;  // whose answers are kept
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, kDevices> answers{};
  int device;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const int answer = device < kDevices ? answers[device].load(std::memory_order_relaxed) : int{kUnknown};
  *runs = answer == kYes;
  if (answer != kUnknown) return cudaSuccess;
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, block_reflector_bulk_kernel<32, true, false, false>);
  if (error != cudaSuccess) return error;
  *runs = attributes.maxThreadsPerBlock >= kBulkThreads<true>;
  if (device < kDevices) answers[device].store(*runs ? kYes : kNo, std::memory_order_relaxed);
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_block_reflector(const BlockReflectorShape& shape, float* h, const __half* halves, const float* t,
                                   bool transpose, float* scales, bool make_scales, bool remake_scales,
                                   const float* src, cudaStream_t stream) {
  if (shape.batch == 0 || shape.first == shape.last) return cudaSuccess;
  if (shape.width > kMaxBlockReflectorWidth) return cudaErrorInvalidValue;
  const Arguments arguments{shape, h,     halves, t, transpose, scales, make_scales, make_scales || remake_scales,
                            src,   stream};
  const auto launch_width = [&](auto narrow, auto wide, int64_t shares) {
    return (shape.width <= 32 ? narrow : wide)(arguments, shares);
  };
  // Whether quads of C are 16-byte aligned and wholly inside or outside, and those in memory begin with one.
  const bool aligned = (shape.n | shape.first | shape.last) % 4 == 0 && (shape.known % 4 == 0 || shape.all_known());
  bool hopper = false;
  int64_t shares;
  cudaError_t error = runs_hopper_code(&hopper);
  if (error == cudaSuccess) error = plan_shares(shape, hopper, &shares);
  if (error != cudaSuccess) return error;
  const auto launch_kernel = [&](auto is_aligned, auto is_shared) {
    constexpr bool kAligned = decltype(is_aligned)::value, kShared = decltype(is_shared)::value;
    const int64_t count = kShared ? shares : 1;
    return hopper ? launch_width(launch_bulk<32, kAligned, kShared>, launch_bulk<64, kAligned, kShared>, count)
                  : launch_width(launch_copies<32, kAligned, kShared>, launch_copies<64, kAligned, kShared>, count);
  };
  const auto launch_shared = [&](auto is_aligned) {
    return shares > 1 ? launch_kernel(is_aligned, std::true_type{}) : launch_kernel(is_aligned, std::false_type{});
  };
  return aligned ? launch_shared(std::true_type{}) : launch_shared(std::false_type{});
}

namespace {

// Whether the kernel of two block reflectors takes them, the second of them and columns of this shape: where the device
// has it, and quads are aligned.
cudaError_t takes_two(const BlockReflectorShape& second, bool* takes) {
  *takes = false;
  if ((second.n | second.first | second.last | second.offset) % 4 != 0) return cudaSuccess;
  return runs_hopper_code(takes);
}

// How many CTAs share the rows of a strip, of which a multiprocessor has one: as many as take the least time. In the
// time of a tile: what they take beside their tiles.
int64_t plan_shares_of_two(int64_t rows, int64_t strips, int processors) {
  constexpr double kOverhead[] = {4, 5.5, 6.7};
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  int64_t shares = 1;
  double least = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t count = int64_t{1} << i;
    // Clusters do not take strip after strip, and do not fit everywhere.
    if (count > 1 && (count > tiles || strips * count > processors * 10 / 11)) break;
    const double time = static_cast<double>((strips + processors - 1) / processors) *
                        (static_cast<double>((tiles + count - 1) / count) + kOverhead[i]);
    if (count == 1 || time < least) {
      shares = count;
      least = time;
    }
  }
  return shares;
}

}  // namespace

cudaError_t launch_coupling(const BlockReflectorShape& second, int64_t first_width, const float* h,
                            const float* const (&t)[2], const __half* halves, float* coupling, cudaStream_t stream) {
  BlockReflectorShape shape = second;
  shape.first = second.offset - first_width;
  shape.last = second.offset;
  bool takes;
  int64_t shares;
  cudaError_t error = takes_two(second, &takes);
  if (error != cudaSuccess || !takes || shape.batch == 0) return error;
  error = plan_shares(shape, true, &shares);
  if (error != cudaSuccess) return error;
  const Arguments a{shape, coupling, halves, t[1], true, nullptr, false, false, h, stream};
  const auto launch_kernel = [&](auto kernel) {
    return launch(kernel, kBulkThreads<true>, sizeof(BulkShared<64>), shares, a,
                  [&](int64_t batch, int64_t count, auto& parameters) {
                    BulkMaps maps;
                    const float* const first = h + batch * a.matrix_stride() + shape.offset * shape.n + shape.first;
                    const bool made =
                        make_map_of_c(&maps.c, first, first_width, a.rows(), shape.n, a.matrix_stride(), count) &&
                        make_map_of_v<64>(&maps.v, halves, shape.width, a.rows(), batch, count);
                    parameters = {coupling + batch * kCouplingFloats,
                                  t[0] + batch * first_width * first_width,
                                  t[1] + batch * shape.width * shape.width,
                                  true,
                                  nullptr,
                                  false,
                                  false,
                                  column_scale(shape.m),
                                  a.matrix_stride(),
                                  static_cast<int>(shape.n),
                                  static_cast<int>(a.rows()),
                                  static_cast<int>(shape.width),
                                  0,
                                  static_cast<int>(first_width),
                                  0,
                                  1,
                                  maps,
                                  nullptr};
                    return made;
                  });
  };
  return shares > 1 ? launch_kernel(block_reflector_bulk_kernel<64, true, true, true>)
                    : launch_kernel(block_reflector_bulk_kernel<64, true, false, true>);
}

cudaError_t launch_two_block_reflectors(const BlockReflectorShape& shape, int64_t second_width, float* h,
                                        const __half* const (&halves)[2], const float* const (&t)[2], float* coupling,
                                        float* scales, bool make_scales, const float* src, cudaStream_t stream) {
  if (shape.batch == 0 || shape.first == shape.last) return cudaSuccess;
  BlockReflectorShape second = shape;
  second.offset += shape.width;
  second.width = second_width;
  bool takes;
  cudaError_t error = takes_two(second, &takes);
  if (error != cudaSuccess) return error;
  if (!takes) {
    error = launch_block_reflector(shape, h, halves[0], t[0], true, scales, make_scales, false, src, stream);
    return error != cudaSuccess
               ? error
               : launch_block_reflector(second, h, halves[1], t[1], true, scales, false, false, h, stream);
  }
  int device, processors;
  error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Arguments a{shape, h, nullptr, nullptr, true, scales, make_scales, make_scales, src, stream};
  const int64_t widths[2] = {shape.width, second_width}, all_columns_from = shape.offset + shape.width + second_width;
  const int64_t shares = plan_shares_of_two(a.rows(), shape.at_once * shape.batch * a.strips(), processors);
  const auto launch_kernel = [&](auto kernel) {
    return launch(
        kernel, two::kAllThreads, sizeof(two::Shared), shares, a,
        [&](int64_t batch, int64_t count, auto& parameters) {
          two::Arguments arguments;
          two::Maps maps;
          float* const of_matrices = coupling + batch * kCouplingFloats;
          bool made =
              make_map_of_c(&maps.c, a.src + batch * a.matrix_stride() + shape.offset * shape.n + shape.first,
                            a.columns(), a.rows(), shape.n, a.matrix_stride(), count) &&
              make_map<4>(&maps.t, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, of_matrices, {64, 64, 6, count},
                          {2 * 64, 2 * 64 * 64, 4 * kCouplingFloats}, {64, 64, 6, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
          for (int i = 0; i < 2; ++i)
            made = made && make_map_of_v<64>(&maps.v[i], halves[i], widths[i], a.rows() - i * widths[0], batch, count);
          arguments.h = h + batch * a.matrix_stride() + shape.offset * shape.n + shape.offset;
          arguments.coupling = of_matrices;
          arguments.tickets = reinterpret_cast<int*>(of_matrices + kCouplingTickets) + (shape.first > all_columns_from);
          arguments.scales = scales + batch * shape.n + shape.offset;
          arguments.make_scales = make_scales;
          arguments.column_scale = column_scale(shape.m);
          arguments.matrix_stride = a.matrix_stride();
          arguments.row_stride = static_cast<int>(shape.n);
          arguments.rows = static_cast<int>(a.rows());
          arguments.first_width = static_cast<int>(shape.width);
          arguments.first = static_cast<int>(shape.first - shape.offset);
          arguments.columns = static_cast<int>(a.columns());
          arguments.strips = static_cast<int>(a.strips());
          arguments.all_strips = static_cast<int>(count * a.strips());
          parameters = {arguments, maps};
          return made;
        },
        shares > 1 ? kMaxGrid : processors);
  };
  return shares > 1 ? launch_kernel(two::two_block_reflectors_kernel<true>)
                    : launch_kernel(two::two_block_reflectors_kernel<false>);
}

}  // namespace jaxqr
