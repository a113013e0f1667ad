// What the driver's parts share: errors end it, and device memory.
#ifndef JAXQR_FFI_DRIVER_DEVICE_H_
#define JAXQR_FFI_DRIVER_DEVICE_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "../panel.h"
#include "../reflector_halves.h"
#include "../reflectors.h"

namespace driver {

inline void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define REQUIRE(call) require(call, #call)

// Shared memory that the device offers to one CTA.
inline int64_t shared_bytes_limit() {
  int bytes;
  REQUIRE(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  return bytes;
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    REQUIRE(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    REQUIRE(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) : count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    REQUIRE(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};
using DeviceFloats = DeviceArray<float>;
using DeviceHalves = DeviceArray<__half>;

// Elements of a panel's halves, over the batch.
inline size_t halves_count(const jaxqr::PanelShape& s) {
  return s.batch * (s.m - s.offset) * 2 * jaxqr::reflector_pitch(s.width);
}

inline const float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Reflectors {
  std::vector<DeviceFloats> t;
  std::vector<DeviceHalves> halves;
  std::vector<jaxqr::ReflectorBlock> blocks;
};

// Room for blocks of these widths from `offset` on.
inline Reflectors room_for_reflectors(int64_t batch, int64_t m, int64_t offset, const std::vector<int64_t>& widths) {
  Reflectors result;
  result.t.reserve(widths.size());
  result.halves.reserve(widths.size());
  for (int64_t width : widths) {
    result.t.emplace_back(std::vector<float>(batch * width * width, kPoison));
    result.halves.emplace_back(
        std::vector<__half>(batch * (m - offset) * 2 * jaxqr::reflector_pitch(width), __float2half(kPoison)));
    result.blocks.push_back({result.t.back().get(), result.halves.back().get(), offset, width});
    offset += width;
  }
  return result;
}

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_DEVICE_H_
