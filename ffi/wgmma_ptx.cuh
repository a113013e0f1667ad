// Named wrappers of the PTX instructions for products of a warpgroup (sm_90a only): four warps multiply 64 rows, which
// they hold in registers, by 32 or 64 columns in shared memory, on the tensor cores' own time.
#ifndef JAXQR_FFI_WGMMA_PTX_CUH_
#define JAXQR_FFI_WGMMA_PTX_CUH_

#include <cstdint>

#include "ptx.cuh"

namespace jaxqr::ptx {

// A factor in shared memory: rows of kRowBytes, 128 or 64, whose 16-byte words are swizzled as tensor copies do, groups
// of eight rows one after the other. The place of its beginning, to which bytes / 16 may be added, inside a row too.
__device__ __forceinline__ uint32_t wgmma_place(const void* shared) {
  return 1u << 16 | (shared_address(shared) & 0x3ffff) / 16;
}
template <int kRowBytes>
inline constexpr uint32_t kWgmmaLayout = (kRowBytes == 128 ? 1u : 2u) << 30 | 8 * kRowBytes / 16;

// Before the first product that uses registers which other instructions have written.
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// The products since the last commit become a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all groups but the last kRest are done, for a result.
template <int kRest, int kCount>
__device__ __forceinline__ void wgmma_wait(float (&result)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kRest) : "memory");
#pragma unroll
  for (float& x : result) asm volatile("" : "+f"(x)::"memory");  // not read before
}

// acc = a·b, or with kAdds acc + a·b: 16 columns of a's 64 rows as the fragments of mma.m16n8k16, b from shared memory
// as 16 rows of 32 or 64, or without kRows as 16 columns of its transpose.
template <int kRowBytes, bool kAdds, bool kRows>
__device__ __forceinline__ void wgmma(float (&acc)[16], const uint32_t (&a)[4], uint32_t b) {
  asm volatile(
      "{\n\t.reg .pred adds;\n\t.reg .b64 b;\n\tsetp.ne.b32 adds, %21, 0;\n\tmov.b64 b, {%20, %23};\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, "
      "{%16, %17, %18, %19}, b, adds, 1, 1, %22;\n\t}"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(int{kAdds}), "n"(int{kRows}),
        "n"(kWgmmaLayout<kRowBytes>)
      : "memory");
}
template <int kRowBytes, bool kAdds, bool kRows>
__device__ __forceinline__ void wgmma(float (&acc)[32], const uint32_t (&a)[4], uint32_t b) {
  asm volatile(
      "{\n\t.reg .pred adds;\n\t.reg .b64 b;\n\tsetp.ne.b32 adds, %37, 0;\n\tmov.b64 b, {%36, %39};\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, b, adds, 1, 1, %38;\n\t}"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]),
        "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]),
        "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(int{kAdds}), "n"(int{kRows}),
        "n"(kWgmmaLayout<kRowBytes>)
      : "memory");
}

// By all threads of a warpgroup: from now on they have at most, or at least, so many registers.
template <int kCount>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace jaxqr::ptx

#endif  // JAXQR_FFI_WGMMA_PTX_CUH_
