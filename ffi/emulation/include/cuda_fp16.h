// In the place of CUDA's header.
#include "../cuda_on_cpu.h"
