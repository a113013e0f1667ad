// In the place of CUDA's header.
#ifndef JAXQR_FFI_EMULATION_CUDA_RUNTIME_API_H_
#define JAXQR_FFI_EMULATION_CUDA_RUNTIME_API_H_

enum cudaError_t : int;
using cudaStream_t = struct CUstream_st*;

#endif  // JAXQR_FFI_EMULATION_CUDA_RUNTIME_API_H_
