#include <cstdio>
#include <string>
#include <vector>

#include "../cluster_panel.h"
#include "../look_ahead.h"
#include "../reflectors.h"
#include "../tall.h"
#include "../tall_update.h"
#include "compiled_kernels.h"
#include "device.h"
#include "fill.cuh"
#include "times.h"
#include "timing.h"

namespace driver {

using jaxqr::BlockReflectorShape;
using jaxqr::PanelKernel;
using jaxqr::PanelKernelName;
using jaxqr::PanelShape;

namespace {

double time_lift(const jaxqr::LeavesShape& s) {
  const DeviceFloats h(s.batch * s.m * s.n), tau(s.batch * s.leaves * s.width),
      stack(s.batch * s.stack_rows() * s.width);
  fill<<<1024, 256>>>(h.get(), s.batch * s.m * s.n);
  fill<<<1024, 256>>>(tau.get(), s.batch * s.leaves * s.width);
  fill<<<1024, 256>>>(stack.get(), s.batch * s.stack_rows() * s.width);
  return graph_microseconds(
      [&](cudaStream_t stream) { return jaxqr::launch_lift(s, h.get(), tau.get(), stack.get(), stream); });
}

}  // namespace

double time_panel(const PanelKernelName& name, const PanelShape& s, bool has_t) {
  const int64_t size = s.batch * s.m * s.n;
  const DeviceFloats a(size), h(size), tau(s.batch * s.width), t(has_t ? s.batch * s.width * s.width : 0);
  const DeviceHalves halves(has_t ? halves_count(s) : 0);
  const PanelKernel kernel = jaxqr::panel_kernel(name, s, has_t);
  fill<<<1024, 256>>>(a.get(), size);
  return graph_microseconds([&](cudaStream_t stream) {
    return kernel.launch(a.get(), h.get(), tau.get(), has_t ? t.get() : nullptr, halves.get(), stream);
  });
}

int time_tall(const jaxqr::LeavesShape& s, const jaxqr::PanelVariant& variant) {
  if (const char* reason = jaxqr::panel_variant_mismatch(variant, s)) {
    std::fprintf(stderr, "%s\n", reason);
    return 2;
  }
  const int64_t size = s.batch * s.m * s.n;
  const DeviceFloats a(size), h(size), tau(s.batch * s.leaves * s.width), stack(s.batch * s.stack_rows() * s.width);
  fill<<<1024, 256>>>(a.get(), size);
  const double leaves =
      microseconds([&] { return jaxqr::launch_panel_leaves(variant, s, a.get(), h.get(), tau.get(), nullptr); });
  const double stacking = microseconds([&] { return jaxqr::launch_stack(s, a.get(), h.get(), stack.get(), nullptr); });
  std::printf("leaves %.2f, stack %.2f, lift %.2f\n", leaves, stacking, time_lift(s));
  return 0;
}

double time_tall_update(const jaxqr::TallUpdateShape& s) {
  const int64_t size = s.batch * s.m * s.n;
  const DeviceFloats h(size), tau(s.batch * s.width), workspace(s.batch * s.workspace());
  fill<<<1024, 256>>>(h.get(), size);
  REQUIRE(cudaMemset(tau.get(), 0, s.batch * s.width * sizeof(float)));  // or else C would grow
  return microseconds(
      [&] { return jaxqr::launch_tall_update(s, h.get(), tau.get(), workspace.get(), h.get(), nullptr); });
}

double time_update(const BlockReflectorShape& s, bool make_scales, bool remake_scales) {
  const int64_t size = s.batch * s.m * s.n;
  const DeviceFloats a(size), h(size), t(s.batch * s.width * s.width), scales(s.batch * s.n);
  const size_t parts = s.batch * (s.m - s.offset) * 2 * jaxqr::reflector_pitch(s.width);
  const DeviceHalves halves(parts);
  fill<<<1024, 256>>>(a.get(), size);
  fill<<<1024, 256>>>(t.get(), s.batch * s.width * s.width);
  fill_halves<<<1024, 256>>>(halves.get(), parts);
  const auto update = [&](bool make_scales, cudaStream_t stream) {
    return jaxqr::launch_block_reflector(s, h.get(), halves.get(), t.get(), true, scales.get(), make_scales,
                                         remake_scales, a.get(), stream);
  };
  REQUIRE(update(true, nullptr));
  return graph_microseconds([&](cudaStream_t stream) { return update(make_scales, stream); });
}

double time_reflectors(int64_t batch, int64_t m, int64_t n, int64_t width, int64_t count) {
  const int64_t k = width * count;
  const DeviceFloats h(batch * m * n), tau(batch * k);
  fill<<<1024, 256>>>(h.get(), batch * m * n);
  fill<<<1024, 256>>>(tau.get(), batch * k);
  const Reflectors result = room_for_reflectors(batch, m, 0, std::vector<int64_t>(count, width));
  return graph_microseconds([&](cudaStream_t stream) {
    return jaxqr::launch_reflectors({batch, m, n, 0, k}, result.blocks, h.get(), tau.get(), stream);
  });
}

int time_ahead(const BlockReflectorShape& s, int64_t next_width, int64_t early, const PanelKernelName& name) {
  const PanelShape next{s.batch, s.m, s.n, s.first, next_width};
  const PanelKernel kernel = jaxqr::panel_kernel(name, next, true);
  if (kernel.mismatch != nullptr) {
    std::fprintf(stderr, "%s\n", kernel.mismatch);
    return 2;
  }
  const int64_t size = s.batch * s.m * s.n;
  const DeviceFloats a(size), h(size), t(s.batch * s.width * s.width), scales(s.batch * s.n), tau(s.batch * next_width),
      next_t(s.batch * next_width * next_width);
  const size_t parts = s.batch * (s.m - s.offset) * 2 * jaxqr::reflector_pitch(s.width);
  const DeviceHalves halves(parts), next_halves(halves_count(next));
  fill<<<1024, 256>>>(a.get(), size);
  fill<<<1024, 256>>>(t.get(), s.batch * s.width * s.width);
  fill_halves<<<1024, 256>>>(halves.get(), parts);
  const jaxqr::Enqueue panel = [&](cudaStream_t stream) {
    return kernel.launch(h.get(), h.get(), tau.get(), next_t.get(), next_halves.get(), stream);
  };
  REQUIRE(jaxqr::launch_block_reflector(s, h.get(), halves.get(), t.get(), true, scales.get(), true, false, a.get(),
                                        nullptr));
  const double in_turn = graph_microseconds([&](cudaStream_t stream) {
    const cudaError_t error = jaxqr::launch_block_reflector(s, h.get(), halves.get(), t.get(), true, scales.get(),
                                                            false, false, a.get(), stream);
    return error != cudaSuccess ? error : panel(stream);
  });
  const double ahead = graph_microseconds([&](cudaStream_t stream) {
    return jaxqr::launch_look_ahead(s, next_width, early, panel, h.get(), halves.get(), t.get(), scales.get(), false,
                                    a.get(), stream);
  });
  std::printf("in turn %.2f, look-ahead %.2f\n", in_turn, ahead);
  return 0;
}

int sweep() {
  constexpr int64_t kMostFloats = int64_t{1} << 27;
  const int64_t shared_limit = shared_bytes_limit();
  cudaDeviceProp properties;
  REQUIRE(cudaGetDeviceProperties(&properties, 0));
  std::printf("# %s\nkernel,rows,width,t,columns,batch,microseconds\n", properties.name);
  const auto line = [](const std::string& kernel, int64_t rows, int64_t width, bool has_t, int64_t columns,
                       int64_t batch, double time) {
    std::printf("%s,%d,%d,%d,%d,%d,%.2f\n", kernel.c_str(), int(rows), int(width), int(has_t), int(columns), int(batch),
                time);
  };

  const auto panels = [&](const Kernel& kernel, int64_t rows, int64_t width, int64_t batch) {
    const PanelShape s{batch, rows, width, 0, width};
    if (width > rows || batch * rows * width > kMostFloats) return;
    const std::vector<int64_t>& v = kernel.name.variant;
    const bool makes_t = kernel.name.regime == "cta" && jaxqr::panel_makes_t({v[0], v[1]}, width);
    for (bool has_t : {false, true}) {
      if (has_t && !makes_t) continue;
      const PanelKernel of_shape = jaxqr::panel_kernel(kernel.name, s, has_t);
      if (of_shape.mismatch != nullptr || of_shape.shared_bytes > shared_limit) continue;
      line(jaxqr::text_of(kernel.name), rows, width, has_t, 0, batch, time_panel(kernel.name, s, has_t));
    }
  };
  for (const Kernel& kernel : compiled_kernels()) {
    const bool tiny = kernel.name.regime == "narrow" || kernel.name.regime == "tiny",
               cluster = kernel.name.regime == "cluster";
    if (kernel.name.regime == "wide" || (cluster && properties.major < 9)) continue;  // as tiny ones
    const std::vector<int64_t> batches = tiny      ? std::vector<int64_t>{1, 132, 640, 2640, 10560, 42240}
                                         : cluster ? std::vector<int64_t>{1, 4, 16, 33, 66, 132}
                                                   : std::vector<int64_t>{1, 60, 132, 264, 640, 1320, 2640};
    for (int64_t width : {4, 8, 16, 24, 32, 48, 64, 96, 128}) {
      if (width > kernel.columns || width < kernel.fewest) continue;
      const int64_t most = cluster ? kernel.rows - kernel.columns + width : kernel.rows;
      for (int64_t rows : {most, most / 2 + 1})
        for (int64_t batch : batches) panels(kernel, rows, width, batch);
    }
  }

  for (int64_t width : {8, 16, 32, 48, 64}) {
    for (int64_t rows : {64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      for (int64_t batch : {1, 4, 16, 60, 132, 640, 2640}) {
        if (batch * rows * width <= kMostFloats)
          line("reflectors", rows, width, true, 0, batch, time_reflectors(batch, rows, width, width, 1));
        for (int64_t columns : {32, 64, 192, 193, 448, 960, 3968}) {
          const int64_t n = width + columns;
          if (batch * rows * n > kMostFloats) continue;
          line("update", rows, width, true, columns, batch,
               time_update({batch, rows, n, 0, width, width, n}, false, false));
        }
      }
    }
  }

  for (int64_t width : {16, 32, 64}) {
    for (int64_t rows : {128, 256, 512, 1024}) {
      for (int64_t leaves : {2, 33, 132, 264, 528, 1056}) {
        const jaxqr::LeavesShape s{1, width + leaves * rows, width, 0, width, leaves};
        if (jaxqr::lift_shared_bytes(s) <= shared_limit) line("lift", rows, width, false, 0, leaves, time_lift(s));
      }
    }
  }
  return 0;
}

}  // namespace driver
