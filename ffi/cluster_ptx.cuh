// Named wrappers of the PTX instructions of a thread-block cluster (sm_90 and later). Shared-memory addresses are
// 32-bit; those in the cluster's window name a CTA too.
#ifndef JAXQR_FFI_CLUSTER_PTX_CUH_
#define JAXQR_FFI_CLUSTER_PTX_CUH_

#include <cstdint>

namespace jaxqr::ptx {

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// The barrier of all threads of the cluster, in two halves: every thread arrives, then waits. What a thread of a CTA
// wrote before it arrived is seen by all who waited.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// An arrival that orders nothing but the mbarriers that the thread has initialized, and does not wait for its writes.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// The address in CTA `rank` of what lies at `address` in this one.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, int rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Writes to a CTA of the cluster and completes 16 bytes of the current phase of that CTA's mbarrier.
__device__ __forceinline__ void store_async(uint32_t mapped_address, const float4& value, uint32_t mapped_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   mapped_address),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(mapped_barrier)
               : "memory");
}

__device__ __forceinline__ float4 load_from_cluster(uint32_t mapped_address) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(mapped_address)
               : "memory");
  return value;
}

__device__ __forceinline__ float load_float_from_cluster(uint32_t mapped_address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(mapped_address) : "memory");
  return value;
}

__device__ __forceinline__ void store_to_cluster(uint32_t mapped_address, const float4& value) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(mapped_address), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

// One arrival, and `bytes` more that the current phase waits for.
__device__ __forceinline__ void mbarrier_arrive_expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}

// Acquire at cluster scope: returns once the phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, "
        "1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

}  // namespace jaxqr::ptx

#endif  // JAXQR_FFI_CLUSTER_PTX_CUH_
