// As much of CUDA as the kernels of the tiny and wide regimes use, on the CPU, so that their code is tested without a
// GPU. To be included before theirs; ptx.cuh is replaced.
//
// The threads of a block are fibers, which take turns: one runs until it comes to a barrier or a shuffle, which it
// passes when all others have come there. So a read that lacks a barrier after the write finds old values in those
// threads that run before the writer. Blocks run one after the other.
#ifndef JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_PTX_CUH_

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static

struct float4 {
  float x, y, z, w;
};

struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx;

using std::isnan;
using std::max;
using std::min;

namespace emulation {

struct Barrier {
  int arrived = 0;
  int64_t phase = 0;
};

struct Warp {
  Barrier barrier;
  uint32_t values[2][32];  // of a shuffle, by the parity of its phase
};

// The block that runs.
struct Block {
  std::function<void()> kernel;
  ucontext_t host;
  std::vector<ucontext_t> fibers;
  std::vector<std::vector<char>> stacks;
  std::vector<bool> done;
  std::vector<Warp> warps;
  std::map<int, Barrier> named;
};
inline Block block;

// Goes on with the next thread that is not done, or with the host if there is none.
inline void switch_from(unsigned thread) {
  const unsigned threads = static_cast<unsigned>(block.fibers.size());
  for (unsigned i = 1; i <= threads; ++i) {
    const unsigned next = (thread + i) % threads;
    if (block.done[next]) continue;
    if (next == thread) return;
    threadIdx.x = next;
    swapcontext(&block.fibers[thread], &block.fibers[next]);
    threadIdx.x = thread;
    return;
  }
  setcontext(&block.host);
}

inline void run_thread() {
  block.kernel();
  block.done[threadIdx.x] = true;
  switch_from(threadIdx.x);
}

inline void run_block(unsigned index, int threads, const std::function<void()>& kernel) {
  blockIdx.x = index;
  threadIdx.x = 0;
  block = {};
  block.kernel = kernel;
  block.fibers.resize(threads);
  block.stacks.assign(threads, std::vector<char>(1 << 17));
  block.done.assign(threads, false);
  block.warps.resize(threads / 32);
  for (int i = 0; i < threads; ++i) {
    getcontext(&block.fibers[i]);
    block.fibers[i].uc_stack.ss_sp = block.stacks[i].data();
    block.fibers[i].uc_stack.ss_size = block.stacks[i].size();
    makecontext(&block.fibers[i], run_thread, 0);
  }
  swapcontext(&block.host, &block.fibers[0]);
}

// Aborts if the others never come.
inline void wait(Barrier* barrier, int count) {
  const int64_t phase = barrier->phase;
  if (++barrier->arrived == count) {
    barrier->arrived = 0;
    ++barrier->phase;
  }
  for (int tries = 0; barrier->phase == phase; ++tries) {
    if (tries > 1000) std::abort();
    switch_from(threadIdx.x);
  }
}

inline Warp& warp() { return block.warps[threadIdx.x / 32]; }

template <typename T>
T value_of_lane(T value, int lane) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  uint32_t* const values = warp().values[warp().barrier.phase % 2];
  std::memcpy(&values[threadIdx.x % 32], &value, sizeof value);
  wait(&warp().barrier, 32);
  std::memcpy(&value, &values[lane], sizeof value);
  return value;
}

}  // namespace emulation

inline void __syncwarp() { emulation::wait(&emulation::warp().barrier, 32); }
template <typename T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int first = static_cast<int>(threadIdx.x % 32) & ~(width - 1);
  return emulation::value_of_lane(value, first + (source & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulation::value_of_lane(value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
inline bool __all_sync(unsigned, bool value) {
  bool all = true;
  for (int lane = 0; lane < 32; ++lane) all &= emulation::value_of_lane(int{value}, lane) != 0;
  return all;
}

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }

namespace jaxqr::ptx {

template <typename T>
T recomputed(T value) {
  return value;
}

// As inexact as the instructions may be, which take denormals for zeros.
inline float inexact(double value) {
  const float result = static_cast<float>(value * (1 + 0x1p-22));
  return std::fabs(result) < std::numeric_limits<float>::min() ? 0.0f : result;
}
inline float rsqrt_approx(float x) {
  return x < std::numeric_limits<float>::min() ? std::numeric_limits<float>::infinity() : inexact(1 / std::sqrt(x));
}
inline float rcp_approx(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(std::numeric_limits<float>::infinity(), x)
                                                          : inexact(1.0 / x);
}

template <int kThreads>
void barrier_sync(int barrier) {
  emulation::wait(&emulation::block.named[barrier], kThreads);
}

// Shared memory is one array; addresses count from its beginning.
inline char* shared_memory;
inline uint32_t shared_address(const void* pointer) {
  shared_memory = static_cast<char*>(const_cast<void*>(pointer));
  return 0;
}
inline float load_shared_1(uint32_t address) {
  float value;
  std::memcpy(&value, shared_memory + address, sizeof value);
  return value;
}
inline void store_shared_1(uint32_t address, float value) {
  std::memcpy(shared_memory + address, &value, sizeof value);
}
inline float4 load_shared_4(uint32_t address) {
  if (address % sizeof(float4) != 0) std::abort();
  float4 value;
  std::memcpy(&value, shared_memory + address, sizeof value);
  return value;
}
inline void store_shared_4(uint32_t address, float4 value) {
  if (address % sizeof(float4) != 0) std::abort();
  std::memcpy(shared_memory + address, &value, sizeof value);
}

inline int64_t global_address(const float* pointer) { return reinterpret_cast<int64_t>(pointer); }
inline float load_global(int64_t address, bool valid) {
  return valid ? *reinterpret_cast<const float*>(address) : 0.0f;
}
inline void store_global(int64_t address, float value, bool valid) {
  if (valid) *reinterpret_cast<float*>(address) = value;
}

}  // namespace jaxqr::ptx

#endif  // JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
