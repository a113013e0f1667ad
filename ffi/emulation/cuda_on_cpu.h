// As much of CUDA as the panel kernels use, on the CPU, so that their code is tested without a GPU. To be included
// before theirs; ptx.cuh and cluster_ptx.cuh are replaced, and include/ has the names of CUDA's own headers.
//
// The threads of a block, and of a cluster, are fibers, which take turns: one runs until it comes to a barrier or a
// shuffle, and goes on when all others have come there. So a read that lacks a barrier after the write finds old values
// in those threads that run before the writer. The blocks of a cluster take turns too, others run one after the other.
#ifndef JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_EMULATION_CUDA_ON_CPU_H_
#define JAXQR_FFI_PTX_CUH_
#define JAXQR_FFI_CLUSTER_PTX_CUH_

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

#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __host__
#define __shared__ thread_local  // which variables of a function, and extern ones, may be

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

// Dynamic shared memory, which kernels know by its name: of the block that runs.
inline unsigned char* dynamic_memory;

struct Barrier {
  int arrived = 0;
  int64_t phase = 0;
  std::vector<int> waiting;  // fibers
};

struct Warp {
  Barrier barrier;
  uint32_t values[2][32];  // of a shuffle, by the parity of its phase
};

// An mbarrier as it lies in shared memory.
struct Mbarrier {
  int32_t bytes;  // that its phase lacks, or has too many
  uint16_t pending;
  uint16_t expected : 15, phase : 1;
};
static_assert(sizeof(Mbarrier) == sizeof(uint64_t));

struct Block {
  std::vector<unsigned char> memory;  // while another block of the cluster runs
  std::deque<int> runnable;
  std::vector<Warp> warps;
  std::map<int, Barrier> named;                  // by their numbers
  std::map<uint32_t, std::vector<int>> waiting;  // for an mbarrier, by its address
};

// The blocks that run beside each other: a cluster, or one.
struct Cluster {
  std::function<void()> kernel;
  ucontext_t host;
  int threads, left;  // of a block; of all that are not done
  int fiber = 0, block = 0;
  std::vector<ucontext_t> fibers;
  std::vector<std::vector<char>> stacks;
  std::vector<Block> blocks;
  Barrier barrier;
  std::vector<int64_t> passed;  // phases of it, by each fiber
};
inline Cluster cluster;

inline Block& block() { return cluster.blocks[cluster.block]; }
inline Warp& warp() { return block().warps[threadIdx.x / 32]; }

// Aborts if all that are left wait for each other.
inline void run_another() {
  const int before = cluster.fiber, blocks = static_cast<int>(cluster.blocks.size());
  int next_block = cluster.block, tries = 0;
  while (cluster.blocks[next_block].runnable.empty()) {
    if (++tries == blocks) std::abort();
    next_block = (next_block + 1) % blocks;
  }
  if (next_block != cluster.block) {
    std::vector<unsigned char>&own = block().memory, &next = cluster.blocks[next_block].memory;
    std::copy_n(dynamic_memory, own.size(), own.begin());
    std::copy(next.begin(), next.end(), dynamic_memory);
    blockIdx.x += next_block - cluster.block;
    cluster.block = next_block;
  }
  cluster.fiber = block().runnable.front();
  block().runnable.pop_front();
  threadIdx.x = cluster.fiber % cluster.threads;
  if (cluster.fiber != before) swapcontext(&cluster.fibers[before], &cluster.fibers[cluster.fiber]);
}

inline void wake(std::vector<int>* waiting) {
  for (int fiber : *waiting) cluster.blocks[fiber / cluster.threads].runnable.push_back(fiber);
  waiting->clear();
}

inline void run_thread() {
  cluster.kernel();
  if (--cluster.left == 0) setcontext(&cluster.host);
  run_another();
}

// Blocks first … first + blocks-1 of a grid, as a cluster.
inline void run_cluster(unsigned first, int blocks, unsigned grid, int threads, int dynamic_bytes,
                        const std::function<void()>& kernel) {
  std::vector<std::vector<char>> stacks = std::move(cluster.stacks);
  cluster = {};
  cluster.stacks = std::move(stacks);
  cluster.kernel = kernel;
  cluster.threads = threads;
  cluster.left = blocks * threads;
  cluster.fibers.resize(cluster.left);
  cluster.passed.assign(cluster.left, 0);
  cluster.stacks.resize(std::max(cluster.stacks.size(), cluster.fibers.size()), std::vector<char>(1 << 17));
  cluster.blocks.resize(blocks);
  for (Block& block : cluster.blocks) {
    block.memory.resize(dynamic_bytes);
    block.warps.resize(threads / 32);
  }
  for (int i = 0; i < cluster.left; ++i) {
    getcontext(&cluster.fibers[i]);
    cluster.fibers[i].uc_stack.ss_sp = cluster.stacks[i].data();
    cluster.fibers[i].uc_stack.ss_size = cluster.stacks[i].size();
    makecontext(&cluster.fibers[i], run_thread, 0);
    if (i > 0) cluster.blocks[i / threads].runnable.push_back(i);
  }
  blockIdx.x = first;
  gridDim.x = grid;
  blockDim.x = static_cast<unsigned>(threads);
  threadIdx.x = 0;
  swapcontext(&cluster.host, &cluster.fibers[0]);
}

inline void arrive(Barrier* barrier, int count) {
  if (++barrier->arrived < count) return;
  barrier->arrived = 0;
  ++barrier->phase;
  wake(&barrier->waiting);
}

inline void wait(Barrier* barrier, int64_t phase) {
  while (barrier->phase == phase) {
    barrier->waiting.push_back(cluster.fiber);
    run_another();
  }
}

inline void arrive_and_wait(Barrier* barrier, int count) {
  const int64_t phase = barrier->phase;
  arrive(barrier, count);
  wait(barrier, phase);
}

template <typename T>
T value_of_lane(T value, int lane) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  uint32_t* const values = warp().values[warp().barrier.phase % 2];
  std::memcpy(&values[threadIdx.x % 32], &value, sizeof value);
  arrive_and_wait(&warp().barrier, 32);
  std::memcpy(&value, &values[lane], sizeof value);
  return value;
}

// Addresses count from the beginning of dynamic shared memory or, if there is none, from the first that is asked for.
// In the cluster's window a block's rank and one come in the upper byte.
inline unsigned char* memory;
constexpr int kOffsetBits = 24;

inline unsigned char* place(uint32_t address, size_t bytes) {
  const uint32_t window = address >> kOffsetBits, offset = address & ((1u << kOffsetBits) - 1);
  if (offset % bytes != 0) std::abort();
  if (window == 0 || static_cast<int>(window) - 1 == cluster.block) return memory + offset;
  return &cluster.blocks[window - 1].memory[offset];
}

// Arrivals and bytes that come to an mbarrier. The bytes may come before the thread that says that they will.
inline void complete(uint32_t address, int arrivals, int bytes) {
  unsigned char* const where = place(address, sizeof(Mbarrier));
  Mbarrier barrier;
  std::memcpy(&barrier, where, sizeof barrier);
  if (barrier.pending < arrivals) std::abort();
  barrier.pending -= static_cast<uint16_t>(arrivals);
  barrier.bytes -= bytes;
  const bool done = barrier.pending == 0 && barrier.bytes == 0;
  if (done) {
    barrier.pending = barrier.expected;
    barrier.phase ^= 1;
  }
  std::memcpy(where, &barrier, sizeof barrier);
  const uint32_t window = address >> kOffsetBits;
  Block& owner = window == 0 ? block() : cluster.blocks[window - 1];
  if (done) wake(&owner.waiting[address & ((1u << kOffsetBits) - 1)]);
}

// Until the phase of that parity is complete.
inline void wait_for_phase(uint32_t address, uint32_t parity) {
  for (;;) {
    Mbarrier barrier;
    std::memcpy(&barrier, place(address, sizeof barrier), sizeof barrier);
    if (barrier.phase != parity) return;
    block().waiting[address].push_back(cluster.fiber);
    run_another();
  }
}

}  // namespace emulation

inline void __syncthreads() { emulation::arrive_and_wait(&emulation::block().named[0], static_cast<int>(blockDim.x)); }
inline void __syncwarp() { emulation::arrive_and_wait(&emulation::warp().barrier, 32); }
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

inline uint32_t shared_address(const void* pointer) {
  unsigned char* const place = static_cast<unsigned char*>(const_cast<void*>(pointer));
  if (emulation::memory == nullptr) emulation::memory = place;
  return static_cast<uint32_t>(place - emulation::memory);
}

inline void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  const uint16_t count = static_cast<uint16_t>(arrivals);
  const emulation::Mbarrier made = {0, count, count, 0};
  std::memcpy(barrier, &made, sizeof made);
}
inline void mbarrier_arrive(uint64_t* barrier) { emulation::complete(shared_address(barrier), 1, 0); }
inline void mbarrier_wait_first_phase(uint64_t* barrier) { emulation::wait_for_phase(shared_address(barrier), 0); }
inline void mbarrier_arrive_expect_bytes(uint32_t barrier, uint32_t bytes) {
  emulation::complete(barrier, 1, -static_cast<int>(bytes));
}
inline void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) { emulation::wait_for_phase(barrier, parity); }

inline int cluster_rank() { return emulation::cluster.block; }
inline void cluster_arrive_relaxed() {
  emulation::Cluster& cluster = emulation::cluster;
  emulation::arrive(&cluster.barrier, static_cast<int>(cluster.fibers.size()));
}
inline void cluster_wait() {
  emulation::wait(&emulation::cluster.barrier, emulation::cluster.passed[emulation::cluster.fiber]++);
}
inline uint32_t map_to_rank(uint32_t address, int rank) {
  return address | static_cast<uint32_t>(rank + 1) << emulation::kOffsetBits;
}
inline void store_async(uint32_t address, const float4& value, uint32_t barrier) {
  std::memcpy(emulation::place(address, sizeof value), &value, sizeof value);
  emulation::complete(barrier, 0, sizeof value);
}

inline void prefetch(const void*) {}
inline void mma_m16n8k16(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) { std::abort(); }  // used by none
template <int kBytes>
void copy_or_clear(void* to, const void* from, bool valid) {
  if (valid)
    std::memcpy(to, from, kBytes);
  else
    std::memset(to, 0, kBytes);
}
inline void copy_async_16(void* to, const void* from, bool valid) { copy_or_clear<16>(to, from, valid); }
inline void copy_async_4(void* to, const void* from, bool valid) { copy_or_clear<4>(to, from, valid); }
inline void copy_async_commit() {}
template <int kPending>
void copy_async_wait() {}

template <int kThreads>
void barrier_sync(int barrier) {
  emulation::arrive_and_wait(&emulation::block().named[barrier], kThreads);
}

inline float load_shared_1(uint32_t address) {
  float value;
  std::memcpy(&value, emulation::place(address, sizeof value), sizeof value);
  return value;
}
inline void store_shared_1(uint32_t address, float value) {
  std::memcpy(emulation::place(address, sizeof value), &value, sizeof value);
}
inline float4 load_shared_4(uint32_t address) {
  float4 value;
  std::memcpy(&value, emulation::place(address, sizeof value), sizeof value);
  return value;
}
inline void store_shared_4(uint32_t address, float4 value) {
  std::memcpy(emulation::place(address, sizeof value), &value, sizeof value);
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
