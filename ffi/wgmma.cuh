// Named wrappers of Hopper's warpgroup products (sm_90a): 128 threads multiply half operands into float32 accumulators,
// asynchronously.
//
// An operand in shared memory is a block of rows of 64 or 128 bytes, aligned to 8 rows, whose 16-byte words are
// permuted (swizzled_word). Warp w, lane 4g + t holds of a 64-row accumulator rows 16w + g (elements 0 and 1 of each
// quad) and 16w + g + 8 (2 and 3), columns 8j + 2t and 8j + 2t + 1 of quad j; of a 64×16 operand in registers, rows 16w
// + g and 16w + g + 8 of columns 2t and 2t + 1, then of columns 2t + 8 and 2t + 9.
#ifndef JAXQR_FFI_WGMMA_CUH_
#define JAXQR_FFI_WGMMA_CUH_

#include <cstdint>

#include "ptx.cuh"

namespace jaxqr::wgmma {

// Where word `word` (16 bytes) of row `row` lies among the kWords words of the row.
template <int kWords>
__device__ __forceinline__ int swizzled_word(int row, int word) {
  static_assert(kWords == 4 || kWords == 8);
  return word ^ (row * kWords / 8 % kWords);
}

// Describes such a block of rows of kRowBytes to the tensor cores. Adding n to a descriptor moves its start by 16·n
// bytes.
template <int kRowBytes>
__device__ __forceinline__ uint64_t descriptor(const void* block) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2, kEightRows = 8 * kRowBytes / 16;
  return kSwizzle << 62 | kEightRows << 32 | uint64_t{1} << 16 | (ptx::shared_address(block) & 0x3ffff) >> 4;
}

// Orders the threads' own accesses of registers before the products that follow.
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kPending of the groups are not complete. Their operands in registers may change then.
template <int kPending>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Waits for all products; what uses these accumulators comes after it.
template <int kCount>
__device__ __forceinline__ void wait(float (&accumulators)[kCount]) {
  wait<0>();
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

// Orders what this thread wrote to shared memory before the products of whoever passes a barrier after it.
__device__ __forceinline__ void publish_operand() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// acc[64×32] += a[64×16]·b[16×32], a row of b for each row of its block.
__device__ __forceinline__ void multiply(float (&acc)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 1;"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// acc[64×64] += a[64×16]·b[16×64], likewise.
__device__ __forceinline__ void multiply(float (&acc)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, "
      "%35}, %36, 1, 1, 1, 1;"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]),
        "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]),
        "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same products of an operand a in shared memory, a row of a for each row of its block. kTransposed: b is the
// transposed of its block. Without `add`, what acc held does not count.
template <bool kTransposed>
__device__ __forceinline__ void multiply_shared(float (&acc)[16], bool add, uint64_t a, uint64_t b) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %18, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15}, %16, %17, add, 1, 1, 0, %19;\n\t}"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(!kTransposed));
}
template <bool kTransposed>
__device__ __forceinline__ void multiply_shared(float (&acc)[32], bool add, uint64_t a, uint64_t b) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, add, "
      "1, 1, 0, %35;\n\t}"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]),
        "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]),
        "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(!kTransposed));
}

}  // namespace jaxqr::wgmma

#endif  // JAXQR_FFI_WGMMA_CUH_
