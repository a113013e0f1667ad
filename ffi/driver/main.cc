// jaxqr_driver: every kernel template without JAX, for compute-sanitizer, ncu and the measurements behind the cost
// model.
//
//   jaxqr_driver check [PART]              all variants at their edges, against float64 on the host; or only the panels
//                                          of a regime, "update", "reflectors" or "tall"
//   jaxqr_driver templates [PART PARTS]    each kernel template once, against the same: for compute-sanitizer, under
//                                          which `check` takes hours. With numbers, every PARTS-th from PART on
//   jaxqr_driver plan [REPLAYS]            microseconds of a whole factorization by the plan on the standard input, as
//                                          `print(jaxqr.schedule_for(m, n, batch))` has it: from a graph, launched
//                                          one by one, and of each step alone. With REPLAYS also how many replays of
//                                          the graph gave other bits than the first
//   jaxqr_driver panel  BATCH M N OFFSET WIDTH t|no-t REGIME NUMBER...
//                                          microseconds of one panel launch by the kernel of that name
//   jaxqr_driver update BATCH M N OFFSET WIDTH [scales|remake]
//                                          microseconds of one update of all columns right of the panel; with
//                                          `scales` one that makes the columns' scales too, with `remake` one that
//                                          makes those for the next update
//   jaxqr_driver reflectors BATCH M N WIDTH COUNT
//                                          microseconds to make COUNT block reflectors in one launch
//   jaxqr_driver ahead BATCH M N OFFSET WIDTH NEXT EARLY REGIME NUMBER...
//                                          microseconds of an update and the panel of NEXT columns after it: one after
//                                          the other, and with look-ahead; both replayed from a graph
//   jaxqr_driver tall BATCH M N OFFSET WIDTH LEAVES NUMBER...
//                                          microseconds of a tall panel's leaves by the CTA kernel of that name, of
//                                          their stack, and of the lift
//   jaxqr_driver tall-update BATCH M N OFFSET WIDTH
//                                          microseconds of the update of all columns right of a tall panel
//   jaxqr_driver sweep                     all kernels of the cost model over rows, widths and batches, as the CSV that
//                                          `python -m benchmarks fit` reads; about a minute
//
// Exit status 0, 1 if a check failed, 2 on wrong usage.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "checks.h"
#include "plan.h"
#include "times.h"

namespace {

int usage() {
  std::fprintf(stderr,
               "usage: jaxqr_driver check [PART] | templates [PART PARTS] | plan [REPLAYS] | sweep | panel BATCH M N "
               "OFFSET WIDTH t|no-t REGIME NUMBER... | update BATCH M N OFFSET WIDTH [scales|remake] | ahead BATCH M N "
               "OFFSET WIDTH NEXT EARLY REGIME NUMBER... | reflectors BATCH M N WIDTH COUNT | tall BATCH M N OFFSET "
               "WIDTH LEAVES NUMBER... | tall-update BATCH M N OFFSET WIDTH\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace driver;
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  if (mode == "check" && argc <= 3) return check(argc == 3 ? argv[2] : "");
  if (mode == "templates" && argc == 2) return templates(0, 1);
  if (mode == "templates" && argc == 4 && number(3) > 0) return templates(number(2), number(3));
  if (mode == "plan" && argc <= 3) return time_plan(std::cin, argc == 3 ? number(2) : 0);
  if (mode == "sweep" && argc == 2) return sweep();
  if (mode == "panel" && argc > 9) {
    const jaxqr::PanelShape shape{number(2), number(3), number(4), number(5), number(6)};
    const bool has_t = std::string(argv[7]) == "t";
    jaxqr::PanelKernelName name{argv[8], {}};
    for (int i = 9; i < argc; ++i) name.variant.push_back(number(i));
    if (const char* reason = jaxqr::panel_kernel(name, shape, has_t).mismatch) {
      std::fprintf(stderr, "%s\n", reason);
      return 2;
    }
    std::printf("%.2f\n", time_panel(name, shape, has_t));
    return 0;
  }
  if (mode == "update" && argc >= 7) {
    const int64_t offset = number(5), width = number(6), n = number(4);
    const std::string scales = argc == 8 ? argv[7] : "";
    std::printf("%.2f\n", time_update({number(2), number(3), n, offset, width, offset + width, n}, scales == "scales",
                                      scales == "remake"));
    return 0;
  }
  if (mode == "ahead" && argc > 10) {
    const int64_t n = number(4), offset = number(5), width = number(6);
    jaxqr::PanelKernelName name{argv[9], {}};
    for (int i = 10; i < argc; ++i) name.variant.push_back(number(i));
    return time_ahead({number(2), number(3), n, offset, width, offset + width, n}, number(7), number(8), name);
  }
  if (mode == "tall" && argc == 10)
    return time_tall({number(2), number(3), number(4), number(5), number(6), number(7)}, {number(8), number(9)});
  if (mode == "tall-update" && argc == 7) {
    std::printf("%.2f\n", time_tall_update({number(2), number(3), number(4), number(5), number(6)}));
    return 0;
  }
  if (mode == "reflectors" && argc == 7) {
    std::printf("%.2f\n", time_reflectors(number(2), number(3), number(4), number(5), number(6)));
    return 0;
  }
  return usage();
}
