// Checks of every kernel against float64 on the host. They print what fails, and return the exit status.
#ifndef JAXQR_FFI_DRIVER_CHECKS_H_
#define JAXQR_FFI_DRIVER_CHECKS_H_

#include <cstdint>
#include <string>

namespace driver {

// All variants at their edges. `part` is a regime, "update", "reflectors" or "tall"; all if it is empty.
int check(const std::string& part);

// Each template once, on all rows that it holds, as far as the device has room for it: every `parts`-th from `part` on.
int templates(int64_t part, int64_t parts);

}  // namespace driver

#endif  // JAXQR_FFI_DRIVER_CHECKS_H_
