#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "../block_reflector.h"
#include "../look_ahead.h"
#include "../regimes.h"
#include "../step_slots.h"
#include "../steps.h"
#include "device.h"
#include "fill.cuh"
#include "plan.h"
#include "timing.h"

namespace driver {
namespace {

using jaxqr::BlockReflectorShape;
using jaxqr::PanelKernel;
using jaxqr::PanelShape;

struct PlanStep {
  jaxqr::PanelKernelName name;
  std::string regime;  // that the name refers to
  int64_t offset, width;
  bool updates, pairs, looks_ahead;
  int64_t early;
};

struct Plan {
  int64_t batch = 0, m = 0, n = 0;
  bool in_halves = false;
  std::vector<PlanStep> steps;

  jaxqr::StepSlots slots() const {
    jaxqr::StepSlots slots;
    for (const PlanStep& step : steps) {
      slots.any_pairs |= step.pairs;
      slots.any_look_ahead |= step.looks_ahead;
    }
    return slots;
  }
  // Whether a step's update is by the reflectors of the one before it, too.
  bool by_two(size_t i) const { return i > 0 && steps[i - 1].pairs; }
};

// The decimal numbers in a text.
std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  bool inside = false;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      inside = false;
      continue;
    }
    if (!inside) numbers.push_back(0);
    inside = true;
    numbers.back() = 10 * numbers.back() + (c - '0');
  }
  return numbers;
}

// The title, the header, and a line a step: its number, columns, rows, regime, variant, and update.
bool read(std::istream& text, Plan* plan) {
  std::string line;
  if (!std::getline(text, line)) return false;
  const std::vector<int64_t> sizes = numbers_in(line.substr(0, line.find(')')));
  if (sizes.size() != 3) return false;
  *plan = {sizes[0], sizes[1], sizes[2], line.find("two halves") != std::string::npos, {}};
  std::getline(text, line);
  while (std::getline(text, line)) {
    std::istringstream words(line);
    std::string number, columns, rows, regime, variant, update;
    if (!(words >> number >> columns >> rows >> regime >> variant)) continue;
    std::getline(words, update);
    const std::vector<int64_t> range = numbers_in(columns), early = numbers_in(update);
    const bool updates = update.find("fused") != std::string::npos;
    if (range.size() != 2 || (!updates && update.find_first_not_of(" -") != std::string::npos)) return false;
    plan->steps.push_back({{{}, numbers_in(variant)},
                           regime,
                           range[0],
                           range[1] - range[0],
                           updates,
                           update.find("with the next") != std::string::npos,
                           update.find("look-ahead") != std::string::npos,
                           early.empty() ? 0 : early[0]});
  }
  for (PlanStep& step : plan->steps) step.name.regime = step.regime;
  return !plan->steps.empty() && !plan->steps.back().pairs;
}

__global__ void count_differences(const unsigned* x, const unsigned* y, int64_t count,
                                  unsigned long long* differences) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    if (x[i] != y[i]) atomicAdd(differences, 1ull);
}

// The memory of a factorization, and its launches.
class Factorization {
 public:
  explicit Factorization(const Plan& plan)
      : plan_(plan),
        slots_(plan.slots()),
        size_(plan.batch * plan.m * plan.n),
        a_(size_),
        h_(size_),
        tau_(plan.batch * plan.n),
        scales_(plan.batch * plan.n) {
    int64_t widest = 0;
    for (const PlanStep& step : plan.steps) widest = step.updates ? std::max(widest, step.width) : widest;
    // At least of a panel and of the one before it, whose update it goes beside.
    for (int64_t i = 0; i < std::max<int64_t>(2, slots_.reflectors()); ++i) {
      t_.emplace_back(plan.batch * widest * widest);
      halves_.emplace_back(halves_count({plan.batch, plan.m, plan.n, 0, widest}));
    }
    for (int64_t i = 0; i < slots_.couplings(); ++i) couplings_.emplace_back(plan.batch * jaxqr::kCouplingFloats);
    fill<<<1024, 256>>>(a_.get(), size_);
  }

  cudaError_t launch(cudaStream_t stream) const {
    if (plan_.in_halves || slots_.any_pairs) return launch_in_one_call(stream);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < plan_.steps.size() && error == cudaSuccess; ++i) {
      if (i == 0 || !plan_.steps[i - 1].looks_ahead) error = panel(i, source(i), stream);
      if (error == cudaSuccess) error = update(i, stream);
    }
    return error;
  }
  // A panel of the input: one of H, factored again and again, would end in tiny tails, which take longer.
  cudaError_t panel_of_input(size_t i, cudaStream_t stream) const { return panel(i, a_.get(), stream); }
  cudaError_t panel(size_t i, const float* src, cudaStream_t stream) const {
    const PlanStep& step = plan_.steps[i];
    const PanelShape shape{plan_.batch, plan_.m, plan_.n, step.offset, step.width};
    return jaxqr::panel_kernel(step.name, shape, step.updates)
        .launch(src, h_.get(), tau_of(step), step.updates ? t_[i % 2].get() : nullptr,
                step.updates ? halves_[i % 2].get() : nullptr, stream);
  }
  // Whether a step's update has the next panel beside it. That of two steps is timed alone.
  bool looks_ahead(size_t i) const { return plan_.steps[i].looks_ahead && !slots_.any_pairs; }
  // With look-ahead the next panel too.
  cudaError_t update(size_t i, cudaStream_t stream) const {
    const PlanStep& step = plan_.steps[i];
    if (!step.updates) return cudaSuccess;
    if (plan_.by_two(i)) return update_by_two(i, stream);
    const int64_t first = step.offset + step.width, last = step.pairs ? first + plan_.steps[i + 1].width : plan_.n;
    const BlockReflectorShape shape{plan_.batch, plan_.m, plan_.n, step.offset, step.width, first, last};
    if (!looks_ahead(i))
      return jaxqr::launch_block_reflector(shape, h_.get(), halves_[i % 2].get(), t_[i % 2].get(), true, scales_.get(),
                                           i == 0, false, source(i), stream);
    return jaxqr::launch_look_ahead(
        shape, plan_.steps[i + 1].width, step.early,
        [&](cudaStream_t stream) { return panel(i + 1, h_.get(), stream); }, h_.get(), halves_[i % 2].get(),
        t_[i % 2].get(), scales_.get(), i == 0, source(i), stream);
  }

  // How many of `replays` of the graph give H other bits than the first.
  int64_t unlike_the_first(int64_t replays) const {
    const DeviceFloats first(size_);
    const DeviceArray<unsigned long long> differences(std::vector<unsigned long long>(replays, 0));
    const Graph graph([&](cudaStream_t stream) { return launch(stream); });
    REQUIRE(graph.launch());
    REQUIRE(cudaMemcpyAsync(first.get(), h_.get(), size_ * sizeof(float), cudaMemcpyDeviceToDevice, graph.stream()));
    for (int64_t replay = 0; replay < replays; ++replay) {
      REQUIRE(graph.launch());
      count_differences<<<1024, 256, 0, graph.stream()>>>(reinterpret_cast<const unsigned*>(first.get()),
                                                          reinterpret_cast<const unsigned*>(h_.get()), size_,
                                                          differences.get() + replay);
    }
    REQUIRE(cudaStreamSynchronize(graph.stream()));
    int64_t unlike = 0;
    for (const unsigned long long count : differences.host()) unlike += count > 0;
    return unlike;
  }

 private:
  const float* source(size_t i) const { return i == 0 ? a_.get() : h_.get(); }
  float* tau_of(const PlanStep& step) const { return tau_.get() + plan_.batch * step.offset; }

  // And what couples the two.
  cudaError_t update_by_two(size_t i, cudaStream_t stream) const {
    const PlanStep &first = plan_.steps[i - 1], &second = plan_.steps[i];
    const int64_t end = second.offset + second.width;
    const float* const t[2] = {t_[(i - 1) % 2].get(), t_[i % 2].get()};
    const __half* const halves[2] = {halves_[(i - 1) % 2].get(), halves_[i % 2].get()};
    const BlockReflectorShape of_second{plan_.batch, plan_.m, plan_.n, second.offset, second.width, end, plan_.n};
    const cudaError_t error =
        jaxqr::launch_coupling(of_second, first.width, h_.get(), t, halves[1], couplings_[0].get(), stream);
    if (error != cudaSuccess) return error;
    BlockReflectorShape of_first = of_second;
    of_first.offset = first.offset;
    of_first.width = first.width;
    return jaxqr::launch_two_block_reflectors(of_first, second.width, h_.get(), halves, t, couplings_[0].get(),
                                              scales_.get(), i == 1, source(i - 1), stream);
  }

  cudaError_t launch_in_one_call(cudaStream_t stream) const {
    std::vector<jaxqr::FactorizationStep> steps;
    int64_t group = 0;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const PanelShape shape{1, plan_.m, plan_.n, step.offset, step.width};
      const int64_t slot = slots_.reflectors_of(group, plan_.by_two(i));
      steps.push_back({step.name, step.offset, step.width, tau_of(step), t_[slot].get(), halves_[slot].get(),
                       step.width * step.width, static_cast<int64_t>(halves_count(shape)), step.pairs,
                       step.pairs ? couplings_[slots_.coupling_of(group)].get() : nullptr, step.looks_ahead,
                       step.early});
      group += !step.pairs;
    }
    return jaxqr::launch_steps(plan_.batch, plan_.m, plan_.n, steps, plan_.in_halves, a_.get(), h_.get(), scales_.get(),
                               stream);
  }

  const Plan& plan_;
  const jaxqr::StepSlots slots_;
  const int64_t size_;
  const DeviceFloats a_, h_, tau_, scales_;
  std::vector<DeviceFloats> t_;
  std::vector<DeviceHalves> halves_;
  std::vector<DeviceFloats> couplings_;
};

}  // namespace

int time_plan(std::istream& text, int64_t replays) {
  Plan plan;
  if (!read(text, &plan)) {
    std::fprintf(stderr, "not a plan of fused updates by this package's kernels, as str(schedule) has it\n");
    return 2;
  }
  for (const PlanStep& step : plan.steps) {
    const PanelShape shape{plan.batch, plan.m, plan.n, step.offset, step.width};
    if (const char* reason = jaxqr::panel_kernel(step.name, shape, step.updates).mismatch) {
      std::fprintf(stderr, "column %d: %s\n", static_cast<int>(step.offset), reason);
      return 2;
    }
  }
  const Factorization factorization(plan);
  const auto launch = [&](cudaStream_t stream) { return factorization.launch(stream); };
  std::printf("from a graph %.1f, one by one %.1f\n", graph_microseconds(launch),
              microseconds([&] { return launch(nullptr); }));
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    std::printf("column %d: panel %.1f", static_cast<int>(plan.steps[i].offset),
                graph_microseconds([&](cudaStream_t stream) { return factorization.panel_of_input(i, stream); }));
    if (plan.steps[i].updates)
      std::printf(", update%s %.1f",
                  plan.by_two(i)                 ? " by two"
                  : plan.steps[i].pairs          ? " of the next columns"
                  : factorization.looks_ahead(i) ? " and next panel"
                                                 : "",
                  graph_microseconds([&](cudaStream_t stream) { return factorization.update(i, stream); }));
    std::printf("\n");
  }
  if (replays <= 0) return 0;
  const int64_t unlike = factorization.unlike_the_first(replays);
  std::printf("%d of %d replays differ\n", static_cast<int>(unlike), static_cast<int>(replays));
  return unlike > 0;
}

}  // namespace driver
