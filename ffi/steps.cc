#include "steps.h"

#include "block_reflector.h"
#include "fork.h"
#include "look_ahead.h"
#include "reflector_halves.h"

namespace jaxqr {
namespace {

// `count` matrices from `first` on, on a stream. The panels of those from `origin` on are factored together, so that
// what updates take of them lies without gaps from there on. So many updates go `at_once`.
struct Part {
  int64_t origin, first, count;
  cudaStream_t stream;
  int64_t at_once = 1;
};

// A step, or two that pair.
struct Group {
  const FactorizationStep* first;
  const FactorizationStep* second;  // or null

  const FactorizationStep& last() const { return second == nullptr ? *first : *second; }
  int64_t end() const { return last().offset + last().width; }
};

std::vector<Group> groups_of(const std::vector<FactorizationStep>& steps) {
  std::vector<Group> groups;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool pairs = steps[i].pairs && i + 1 < steps.size();
    groups.push_back({&steps[i], pairs ? &steps[i + 1] : nullptr});
    if (pairs) ++i;
  }
  return groups;
}

// The matrices, and launches on parts of them.
struct Factorization {
  int64_t m, n;
  const FactorizationStep* start;  // which reads A
  const float* src;
  float* h;
  float* scales;

  const float* source(const FactorizationStep& step, const Part& part) const {
    return (&step == start ? src : h) + part.first * m * n;
  }
  static float* t_of(const FactorizationStep& step, const Part& part) {
    return step.t + part.origin * step.t_stride + (part.first - part.origin) * step.width * step.width;
  }
  __half* halves_of(const FactorizationStep& step, const Part& part) const {
    const int64_t of_one = (m - step.offset) * 2 * reflector_pitch(step.width);
    return step.halves + part.origin * step.halves_stride + (part.first - part.origin) * of_one;
  }
  static float* coupling_of(const Group& group, const Part& part) {
    return group.first->coupling + part.first * kCouplingFloats;
  }
  BlockReflectorShape shape_of(const FactorizationStep& step, int64_t first, int64_t last, const Part& part) const {
    return {part.count, m, n, step.offset, step.width, first, last, 0, part.at_once};
  }

  cudaError_t panel(const FactorizationStep& step, const Part& part) const {
    const bool updates = step.offset + step.width < n;
    return panel_kernel(step.kernel, {part.count, m, n, step.offset, step.width}, updates)
        .launch(source(step, part), h + part.first * m * n, step.tau + part.first * step.width,
                updates ? t_of(step, part) : nullptr, updates ? halves_of(step, part) : nullptr, part.stream);
  }

  // Of columns first … last by one step.
  cudaError_t update_by_one(const FactorizationStep& step, int64_t first, int64_t last, const Part& part) const {
    return launch_block_reflector(shape_of(step, first, last, part), h + part.first * m * n, halves_of(step, part),
                                  t_of(step, part), true, scales + part.first * n, &step == start, false,
                                  source(step, part), part.stream);
  }

  // Of columns first … last, which are right of the group.
  cudaError_t update(const Group& group, int64_t first, int64_t last, const Part& part) const {
    if (first == last) return cudaSuccess;
    const auto& [step, second] = group;
    if (second == nullptr) return update_by_one(*step, first, last, part);
    return launch_two_block_reflectors(shape_of(*step, first, last, part), second->width, h + part.first * m * n,
                                       {halves_of(*step, part), halves_of(*second, part)},
                                       {t_of(*step, part), t_of(*second, part)}, coupling_of(group, part),
                                       scales + part.first * n, step == start, source(*step, part), part.stream);
  }

  // The group's panels, and what its update takes.
  cudaError_t factor(const Group& group, const Part& part) const {
    const auto& [step, second] = group;
    cudaError_t error = panel(*step, part);
    if (error != cudaSuccess || second == nullptr) return error;
    error = update_by_one(*step, second->offset, group.end(), part);
    if (error == cudaSuccess) error = panel(*second, part);
    if (error != cudaSuccess) return error;
    return launch_coupling(shape_of(*second, group.end(), n, part), step->width, h + part.first * m * n,
                           {t_of(*step, part), t_of(*second, part)}, halves_of(*second, part), coupling_of(group, part),
                           part.stream);
  }
};

}  // namespace

cudaError_t launch_steps(int64_t batch, int64_t m, int64_t n, const std::vector<FactorizationStep>& steps,
                         bool in_halves, const float* src, float* h, float* scales, cudaStream_t stream) {
  if (batch == 0) return cudaSuccess;
  const Factorization factorization{m, n, steps.data(), src, h, scales};
  const std::vector<Group> groups = groups_of(steps);
  if (in_halves && batch > 1) {
    return run_beside(
        [&](const Fork& fork) {
          const Part halves[] = {{0, 0, batch / 2, fork.stream, 2},
                                 {batch / 2, batch / 2, batch - batch / 2, fork.beside, 2}};
          // Group by group, so that neither half waits for the host to be done with the other.
          for (const Group& group : groups) {
            for (const Part& part : halves) {
              cudaError_t error = factorization.factor(group, part);
              if (error == cudaSuccess) error = factorization.update(group, group.end(), n, part);
              if (error != cudaSuccess) return error;
            }
          }
          return cudaSuccess;
        },
        stream);
  }
  const Part whole{0, 0, batch, stream};
  bool factored = false;  // beside the update before
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    cudaError_t error = factored ? cudaSuccess : factorization.factor(group, whole);
    if (error != cudaSuccess) return error;
    factored = group.last().look_ahead && i + 1 < groups.size();
    if (factored) {
      error = run_look_ahead(
          {batch, group.end(), groups[i + 1].end(), n, group.last().early},
          [&](int64_t first, int64_t last, int64_t matrix, int64_t matrices, cudaStream_t stream) {
            return factorization.update(group, first, last, {0, matrix, matrices, stream});
          },
          [&](cudaStream_t stream) { return factorization.factor(groups[i + 1], {0, 0, batch, stream}); }, stream);
    } else {
      error = factorization.update(group, group.end(), n, whole);
    }
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace jaxqr
