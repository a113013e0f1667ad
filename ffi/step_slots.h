// Where the steps of a factorization keep what updates take of their panels.
//
// A group is one step, or two whose reflectors update the columns right of both at once. Steps take turns in slots of
// memory: what a group's update takes stays until that is done, with look-ahead while the next group is factored.
#ifndef JAXQR_FFI_STEP_SLOTS_H_
#define JAXQR_FFI_STEP_SLOTS_H_

#include <cstdint>

namespace jaxqr {

struct StepSlots {
  bool any_pairs = false, any_look_ahead = false;

  // How many there are of reflectors, and of what couples the two of a group.
  int64_t reflectors() const { return groups() * in_group(); }
  int64_t couplings() const { return any_pairs ? groups() : 0; }

  // Those of a group, counted from the first, and of its first or its second step.
  int64_t coupling_of(int64_t group) const { return group % groups(); }
  int64_t reflectors_of(int64_t group, bool second) const { return coupling_of(group) * in_group() + second; }

 private:
  int64_t groups() const { return any_look_ahead ? 2 : 1; }
  int64_t in_group() const { return any_pairs ? 2 : 1; }
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_STEP_SLOTS_H_
