// Named wrappers of the PTX instructions that copy tiles from global memory to the CTA's shared memory (sm_90 and
// later).
#ifndef JAXQR_FFI_BULK_PTX_CUH_
#define JAXQR_FFI_BULK_PTX_CUH_

#include <cuda.h>

#include <cstdint>

#include "ptx.cuh"

namespace jaxqr::ptx {

// One arrival, and `bytes` more that the current phase waits for.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Returns once the phase of this parity is complete. What copies of its bytes wrote is there.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  const uint32_t address = shared_address(barrier);
  uint32_t done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(address), "r"(parity)
                 : "memory");
  } while (!done);
}

// An arrival once all copies of elements that this thread has started are complete.
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Orders this thread's accesses to shared memory, barriers included, before copies that start after a barrier: reads
// too, which a barrier alone does not.
__device__ __forceinline__ void order_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts a copy of a box of an array, which completes its bytes of the barrier's current phase. Coordinates are those
// of its first element, the last dimension's first; what is outside the array is zero.
__device__ __forceinline__ void copy_tensor(void* shared, const CUtensorMap* map, int i, int j, int k,
                                            uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(shared_address(shared)),
      "l"(map), "r"(i), "r"(j), "r"(k), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void copy_tensor(void* shared, const CUtensorMap* map, int i, int j, int k, int l,
                                            uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(shared_address(shared)),
      "l"(map), "r"(i), "r"(j), "r"(k), "r"(l), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace jaxqr::ptx

#endif  // JAXQR_FFI_BULK_PTX_CUH_
