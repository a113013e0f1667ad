// How a panel hands its reflectors to the block-reflector update: as pairs of halves, ready for tensor cores.
//
// V of a panel, its unit diagonal and the zeros above included, times kReflectorScale, is high + low with high =
// fp16(v) and low = fp16(v - high). halves[batch][rows][2][reflector_pitch(width)]: a row's high parts, then its low
// parts; what is right of the last column is zero.
#ifndef JAXQR_FFI_REFLECTOR_HALVES_H_
#define JAXQR_FFI_REFLECTOR_HALVES_H_

#include <cstdint>

#ifdef __CUDACC__
#define JAXQR_HOST_DEVICE __host__ __device__
#else
#define JAXQR_HOST_DEVICE
#endif

namespace jaxqr {

// Entries of V are at most 1: this brings them to the upper part of fp16's range.
inline constexpr float kReflectorScale = 16384.0f;

// Parts of rows are whole 16-byte words.
JAXQR_HOST_DEVICE constexpr int64_t reflector_pitch(int64_t width) { return (width + 7) / 8 * 8; }

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTOR_HALVES_H_
