// Whole factorizations by a plan of jaxqr.schedule_for, without JAX.
#ifndef JAXQR_FFI_DRIVER_PLAN_H_
#define JAXQR_FFI_DRIVER_PLAN_H_

#include <cstdint>
#include <istream>

namespace driver {

// Reads a plan as str(Schedule) has it, and prints its times, and with `replays` how many of so many gave other bits
// than the first. Returns the exit status: 1 if any did, 2 if the plan cannot be read or is not by these kernels alone.
int time_plan(std::istream& text, int64_t replays);

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_PLAN_H_
