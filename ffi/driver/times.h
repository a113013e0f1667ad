// Times of single launches, in microseconds, on numbers that look random. Those that return an int print their times,
// and return the exit status.
#ifndef JAXQR_FFI_DRIVER_TIMES_H_
#define JAXQR_FFI_DRIVER_TIMES_H_

#include <cstdint>

#include "../block_reflector.h"
#include "../leaves.h"
#include "../panel.h"
#include "../regimes.h"
#include "../tall_update_shape.h"

namespace driver {

// The kernel takes the panel.
double time_panel(const jaxqr::PanelKernelName& name, const jaxqr::PanelShape& s, bool has_t);
double time_update(const jaxqr::BlockReflectorShape& s, bool make_scales, bool remake_scales);
double time_reflectors(int64_t batch, int64_t m, int64_t n, int64_t width, int64_t count);
double time_tall_update(const jaxqr::TallUpdateShape& s);

// Of a tall panel's leaves, their stack, and the lift.
int time_tall(const jaxqr::LeavesShape& s, const jaxqr::PanelVariant& variant);

// Of an update and the panel after it, in turn and with look-ahead.
int time_ahead(const jaxqr::BlockReflectorShape& s, int64_t next_width, int64_t early,
               const jaxqr::PanelKernelName& name);

// Times to fit the cost model in jaxqr/_kernels.py to. Panels have T where their own kernel makes it; the columns are
// those that an update works on, and the batch of a lift is its blocks, whose rows it says.
int sweep();

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_TIMES_H_
