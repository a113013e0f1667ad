// The scalars of one Householder reflector.
#ifndef JAXQR_FFI_REFLECTOR_CUH_
#define JAXQR_FFI_REFLECTOR_CUH_

#include "ptx.cuh"

namespace jaxqr {

// Where alpha and the tail are smaller than this, in units of their column's largest element, kernels that keep x as it
// is, with rescale·inverse as v's factor, count the tail as zero: the factor could overflow.
inline constexpr float kNegligibleTail = 0x1p-110f;

struct Reflector {
  float beta, tau;
  float inverse;           // v = x·inverse
  float neg_inverse_beta;  // -1/beta = tau·inverse
};

// LAPACK slarfg from alpha and a normal Σx² > 0: each result within about half a unit of its last place, whatever the
// roundings on the way. The square and alpha - beta carry their rounding errors along, roots and reciprocals are
// approximations with a Newton step each.
__device__ __forceinline__ Reflector make_reflector(float alpha, float sum_of_squares) {
  const float magnitude = fabsf(alpha), alpha_square = alpha * alpha, square = alpha_square + sum_of_squares;
  const float rest = square - alpha_square;
  const float square_error =
      ((alpha_square - (square - rest)) + (sum_of_squares - rest)) + fmaf(alpha, alpha, -alpha_square);
  const float guess = ptx::rsqrt_approx(square), half_guess = 0.5f * guess;
  const float rough = square * guess, residual = fmaf(-rough, rough, square) + square_error;
  const float inverse_guess = ptx::rcp_approx(magnitude + rough);  // beside what makes the norm exact
  const float norm = fmaf(half_guess, residual, rough);
  const float norm_error = fmaf(half_guess, residual, rough - norm);
  const float inverse_norm = fmaf(guess, fmaf(-norm_error, guess, fmaf(-norm, guess, 1.0f)), guess);
  const float distance = magnitude + norm;  // |alpha - beta|
  const float distance_error = (magnitude - (distance - norm)) + norm_error;
  const float inverse =
      fmaf(inverse_guess, fmaf(-distance_error, inverse_guess, fmaf(-distance, inverse_guess, 1.0f)), inverse_guess);
  return {-copysignf(norm, alpha), fmaf(magnitude, inverse_norm, 1.0f), copysignf(inverse, alpha),
          copysignf(inverse_norm, alpha)};
}

}  // namespace jaxqr

#endif  // JAXQR_FFI_REFLECTOR_CUH_
