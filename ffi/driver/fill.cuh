// Numbers for kernels that are timed: zeros would take other paths.
#ifndef JAXQR_FFI_DRIVER_FILL_CUH_
#define JAXQR_FFI_DRIVER_FILL_CUH_

#include <cuda_fp16.h>

#include <cstdint>

#include "../reflector_halves.h"

namespace driver {

// A number in [-1, 1) that looks random, different for each index.
__device__ inline float scrambled(int64_t index) {
  uint64_t bits = index * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
}

static __global__ void fill(float* data, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    data[i] = scrambled(i);
}

static __global__ void fill_halves(__half* data, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    data[i] = __float2half(0.05f * jaxqr::kReflectorScale * scrambled(i));
}

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_FILL_CUH_
