#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "../block_reflector.h"
#include "../look_ahead.h"
#include "../regimes.h"
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
  bool updates, looks_ahead;
  int64_t early;
};

struct Plan {
  int64_t batch = 0, m = 0, n = 0;
  bool in_halves = false;
  std::vector<PlanStep> steps;
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
                           update.find("look-ahead") != std::string::npos,
                           early.empty() ? 0 : early[0]});
  }
  for (PlanStep& step : plan->steps) step.name.regime = step.regime;
  return !plan->steps.empty();
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
        size_(plan.batch * plan.m * plan.n),
        a_(size_),
        h_(size_),
        tau_(plan.batch * plan.n),
        scales_(plan.batch * plan.n) {
    int64_t widest = 0;
    for (const PlanStep& step : plan.steps) widest = step.updates ? std::max(widest, step.width) : widest;
    for (int i = 0; i < 2; ++i) {  // of a panel and of the one before it, whose update it goes beside
      t_.emplace_back(plan.batch * widest * widest);
      halves_.emplace_back(halves_count({plan.batch, plan.m, plan.n, 0, widest}));
    }
    fill<<<1024, 256>>>(a_.get(), size_);
  }

  cudaError_t launch(cudaStream_t stream) const {
    if (plan_.in_halves) return launch_halves(stream);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < plan_.steps.size() && error == cudaSuccess; ++i) {
      if (i == 0 || !plan_.steps[i - 1].looks_ahead) error = panel(i, stream);
      if (error == cudaSuccess) error = update(i, stream);
    }
    return error;
  }
  cudaError_t panel(size_t i, cudaStream_t stream) const {
    const PlanStep& step = plan_.steps[i];
    const PanelShape shape{plan_.batch, plan_.m, plan_.n, step.offset, step.width};
    return jaxqr::panel_kernel(step.name, shape, step.updates)
        .launch(source(i), h_.get(), tau_of(step), step.updates ? t_[i % 2].get() : nullptr,
                step.updates ? halves_[i % 2].get() : nullptr, stream);
  }
  // With look-ahead the next panel too.
  cudaError_t update(size_t i, cudaStream_t stream) const {
    const PlanStep& step = plan_.steps[i];
    if (!step.updates) return cudaSuccess;
    const BlockReflectorShape shape{plan_.batch, plan_.m, plan_.n, step.offset, step.width, step.offset + step.width,
                                    plan_.n};
    if (!step.looks_ahead)
      return jaxqr::launch_block_reflector(shape, h_.get(), halves_[i % 2].get(), t_[i % 2].get(), true, scales_.get(),
                                           i == 0, false, source(i), stream);
    return jaxqr::launch_look_ahead(
        shape, plan_.steps[i + 1].width, step.early, [&](cudaStream_t stream) { return panel(i + 1, stream); },
        h_.get(), halves_[i % 2].get(), t_[i % 2].get(), scales_.get(), i == 0, source(i), stream);
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

  cudaError_t launch_halves(cudaStream_t stream) const {
    std::vector<jaxqr::FactorizationStep> steps;
    for (const PlanStep& step : plan_.steps) {
      const PanelShape shape{1, plan_.m, plan_.n, step.offset, step.width};
      steps.push_back({step.name, step.offset, step.width, tau_of(step), t_[0].get(), halves_[0].get(),
                       step.width * step.width, static_cast<int64_t>(halves_count(shape))});
    }
    return jaxqr::launch_steps(plan_.batch, plan_.m, plan_.n, steps, a_.get(), h_.get(), scales_.get(), stream);
  }

  const Plan& plan_;
  const int64_t size_;
  const DeviceFloats a_, h_, tau_, scales_;
  std::vector<DeviceFloats> t_;
  std::vector<DeviceHalves> halves_;
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
                graph_microseconds([&](cudaStream_t stream) { return factorization.panel(i, stream); }));
    if (plan.steps[i].updates)
      std::printf(", update%s %.1f", plan.steps[i].looks_ahead ? " and next panel" : "",
                  graph_microseconds([&](cudaStream_t stream) { return factorization.update(i, stream); }));
    std::printf("\n");
  }
  if (replays <= 0) return 0;
  const int64_t unlike = factorization.unlike_the_first(replays);
  std::printf("%d of %d replays differ\n", static_cast<int>(unlike), static_cast<int>(replays));
  return unlike > 0;
}

}  // namespace driver
