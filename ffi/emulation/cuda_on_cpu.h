// As much of CUDA as the tiny, wide and CTA kernels use, on the CPU, so that their code is tested without a GPU. To be
// included before theirs; ptx.cuh is replaced, and include/ has the names of CUDA's own headers.
//
// The threads of a block are fibers, which take turns: one runs until it comes to a barrier or a shuffle, and goes on
// when all others have come there. So a read that lacks a barrier after the write finds old values in those threads
// that run before the writer. Blocks run one after the other.
#ifndef JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_PTX_CUH_

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ constinit thread_local  // which variables of a function, and extern ones, may be

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  uint32_t x, y;
};

// Half precision: 10 bits after the leading one, exponents from -14 on.
struct __half {
  uint16_t bits;
};
struct __half2 {
  __half x, y;
};
inline __half __float2half_rn(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return {0x7fff};
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
  const int exponent = std::max(std::ilogb(magnitude), -14),
            units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return {static_cast<uint16_t>(sign | (((exponent + 14) << 10) + units))};
}
inline float __half2float(__half half) {
  const int exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  const float magnitude = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
                          : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                           : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return half.bits >> 15 ? -magnitude : magnitude;
}
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }

struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

using std::isnan;
using std::max;
using std::min;

namespace emulation {

struct Barrier {
  int arrived = 0;
  int64_t phase = 0;
  std::vector<unsigned> waiting;
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
  std::deque<unsigned> runnable;
  unsigned left;  // threads that are not done
  std::vector<Warp> warps;
  std::map<int, Barrier> named;                        // by their numbers
  std::map<uint64_t*, std::vector<unsigned>> waiting;  // for the first phase of an mbarrier
};
inline Block block;

// Aborts if all that are left wait for each other.
inline void run_another() {
  if (block.runnable.empty()) std::abort();
  const unsigned thread = threadIdx.x, next = block.runnable.front();
  block.runnable.pop_front();
  if (next == thread) return;
  threadIdx.x = next;
  swapcontext(&block.fibers[thread], &block.fibers[next]);
}

inline void wake(std::vector<unsigned>* waiting) {
  block.runnable.insert(block.runnable.end(), waiting->begin(), waiting->end());
  waiting->clear();
}

inline void run_thread() {
  block.kernel();
  if (--block.left == 0) setcontext(&block.host);
  run_another();
}

inline void run_block(unsigned index, unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  blockIdx.x = index;
  gridDim.x = blocks;
  blockDim.x = threads;
  threadIdx.x = 0;
  std::vector<std::vector<char>> stacks = std::move(block.stacks);
  block = {};
  block.kernel = kernel;
  block.fibers.resize(threads);
  block.stacks = std::move(stacks);
  block.stacks.resize(std::max<size_t>(threads, block.stacks.size()), std::vector<char>(1 << 17));
  block.left = threads;
  block.warps.resize(threads / 32);
  for (unsigned i = 0; i < threads; ++i) {
    getcontext(&block.fibers[i]);
    block.fibers[i].uc_stack.ss_sp = block.stacks[i].data();
    block.fibers[i].uc_stack.ss_size = block.stacks[i].size();
    makecontext(&block.fibers[i], run_thread, 0);
    if (i > 0) block.runnable.push_back(i);
  }
  swapcontext(&block.host, &block.fibers[0]);
}

inline void wait(Barrier* barrier, int count) {
  if (++barrier->arrived < count) {
    barrier->waiting.push_back(threadIdx.x);
    run_another();
    return;
  }
  barrier->arrived = 0;
  ++barrier->phase;
  wake(&barrier->waiting);
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

inline void __syncthreads() { emulation::wait(&emulation::block.named[0], static_cast<int>(blockDim.x)); }
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
inline bool __any_sync(unsigned, bool value) {
  bool any = false;
  for (int lane = 0; lane < 32; ++lane) any |= emulation::value_of_lane(int{value}, lane) != 0;
  return any;
}
inline bool __all_sync(unsigned mask, bool value) { return !__any_sync(mask, !value); }

inline int atomicAdd(int* place, int value) {
  const int before = *place;
  *place += value;
  return before;
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

// An mbarrier is the count of arrivals that its first phase lacks.
inline void mbarrier_init(uint64_t* barrier, uint32_t arrivals) { *barrier = arrivals; }
inline void mbarrier_arrive(uint64_t* barrier) {
  if (*barrier == 0) std::abort();
  if (--*barrier == 0) emulation::wake(&emulation::block.waiting[barrier]);
}
inline void mbarrier_wait_first_phase(uint64_t* barrier) {
  if (*barrier == 0) return;
  emulation::block.waiting[barrier].push_back(threadIdx.x);
  emulation::run_another();
}

inline void prefetch(const void*) {}
inline void mma_m16n8k16(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) { std::abort(); }  // used by none
inline void copy_async_16(void* shared, const void* global, bool valid) {
  if (valid)
    std::memcpy(shared, global, 16);
  else
    std::memset(shared, 0, 16);
}
inline void copy_async_4(void* shared, const void* global, bool valid) {
  if (valid)
    std::memcpy(shared, global, 4);
  else
    std::memset(shared, 0, 4);
}
inline void copy_async_commit() {}
template <int kPending>
void copy_async_wait() {}

template <int kThreads>
void barrier_sync(int barrier) {
  emulation::wait(&emulation::block.named[barrier], kThreads);
}

// Addresses count from the beginning of the array that was asked for last.
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
