// Named wrappers of the few PTX instructions that the kernels need. Shared-memory addresses are 32-bit.
#ifndef JAXQR_FFI_PTX_CUH_
#define JAXQR_FFI_PTX_CUH_

#include <cstdint>

namespace jaxqr::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Release at CTA scope: what the thread wrote is seen by whoever waits.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(shared_address(barrier))
               : "memory");
}

// Acquire at CTA scope: returns once the barrier's first phase is complete.
__device__ __forceinline__ void mbarrier_wait_first_phase(uint64_t* barrier) {
  const uint32_t address = shared_address(barrier);
  uint32_t done;
  do {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(address)
                 : "memory");
#else
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared.b64 p, [%1], 0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(address)
                 : "memory");
#endif
  } while (!done);
}

// A barrier of the first kThreads threads of the CTA, whose others may have something else to do.
template <int kThreads>
__device__ __forceinline__ void barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
// The same, which says whether all came with `value`.
template <int kThreads>
__device__ __forceinline__ bool barrier_and(bool value) {
  int all;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\tbar.red.and.pred q, 1, %2, p;\n\tselp.s32 %0, 1, 0, q;\n\t}"
      : "=r"(all)
      : "r"(int{value}), "n"(kThreads)
      : "memory");
  return all != 0;
}

// Named barriers, at which some threads only arrive.
template <int kThreads>
__device__ __forceinline__ void barrier_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void barrier_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// Shared memory by its 32-bit address: a generic pointer would be made anew at every reflector.
__device__ __forceinline__ float4 load_shared_4(uint32_t address) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address));
  return value;
}
__device__ __forceinline__ float load_shared_1(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}
__device__ __forceinline__ void store_shared_4(uint32_t address, float4 value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z),
               "f"(value.w)
               : "memory");
}
__device__ __forceinline__ void store_shared_1(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// Global memory by its 64-bit address: of a pointer every row's would be made anew, by seven instructions. 0 where not
// `valid`, and then nothing is read.
__device__ __forceinline__ float load_global(int64_t address, bool valid) {
  float value;
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\tmov.f32 %0, 0f00000000;\n\t@p ld.global.f32 %0, [%1];\n\t}"
      : "=f"(value)
      : "l"(address), "r"(int{valid}));
  return value;
}
__device__ __forceinline__ void store_global(int64_t address, float value, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t@p st.global.f32 [%0], %1;\n\t}" ::"l"(address),
               "f"(value), "r"(int{valid})
               : "memory");
}
__device__ __forceinline__ int64_t global_address(const float* pointer) {
  return static_cast<int64_t>(__cvta_generic_to_global(pointer));
}

// A load that the compiler may not merge with an earlier one of the same address (which would keep the value in
// registers).
__device__ __forceinline__ float4 load_shared_again(const float* address) {
  float4 value;
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(shared_address(address)));
  return value;
}

// The same value, hidden from the compiler, so that what is computed from it is not kept in registers from an earlier
// place.
__device__ __forceinline__ int recomputed(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ unsigned recomputed(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ int64_t recomputed(int64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}

// About 22 bits; denormal arguments and results count as zero.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Four 8×8 matrices of halves, one row address a lane (lanes 8i … 8i+7 address matrix i).
__device__ __forceinline__ void load_matrices(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row)));
}

// Starts to bring the line at `global` to the L2 cache.
__device__ __forceinline__ void prefetch(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }

// Starts a copy of 16 bytes from global to shared memory, past the first-level cache; zeros instead unless `valid`, and
// then nothing is read. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// The same for 4 bytes, through the first-level cache.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 4 : 0)
               : "memory");
}

// The copies that this thread has started since the last commit become a group.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's groups are not complete.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// acc[16×8] += a[16×16]·b[16×8], half operands, float32 accumulators.
__device__ __forceinline__ void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers as bfloat16, the second one in the upper half. Truncated: the exponents are the numbers' own.
__device__ __forceinline__ uint32_t truncated_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The larger one of each two of the same half.
__device__ __forceinline__ uint32_t max_of_pairs(uint32_t x, uint32_t y) {
  uint32_t larger;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(x), "r"(y));
  return larger;
}

}  // namespace jaxqr::ptx

#endif  // JAXQR_FFI_PTX_CUH_
