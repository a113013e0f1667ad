"""A CUDA stream beside JAX's own that keeps the multiprocessors busy, by the driver's interface.

JAX has one compute stream a device, and the kernels of two processes take turns rather than run together.
"""

import ctypes
import itertools
import threading
from typing import Any

# Holds the place of a thread block for (1 + its index modulo 8) times so many cycles: places become free one by one.
_HOLD = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u32 cycles)
{
  .reg .u32 %r<2>;
  .reg .u64 %d<3>;
  .reg .pred %again;
  mov.u64 %d0, %clock64;
  ld.param.u32 %r0, [cycles];
  mov.u32 %r1, %ctaid.x;
  and.b32 %r1, %r1, 7;
  add.u32 %r1, %r1, 1;
  mul.wide.u32 %d1, %r0, %r1;
wait:
  mov.u64 %d2, %clock64;
  sub.u64 %d2, %d2, %d0;
  setp.lt.u64 %again, %d2, %d1;
  @%again bra wait;
  ret;
}
"""
_CYCLES = 5000
_THREAD_BLOCKS = 264  # two for every multiprocessor of the largest devices
# Threads and bytes of shared memory: all threads of a multiprocessor, or some of its threads and much of its memory.
_SIZES = ((1024, 0), (128, 48 * 1024))
_QUEUED = 32  # launches in the stream's queue
_NON_BLOCKING = 1  # does not wait for the default stream


class BusyStream:
    """Keeps JAX's first device busy inside a `with` block; `launches` counts the kernels that ran."""

    def __init__(self) -> None:
        self.launches = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> "BusyStream":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            self._launch_until_stopped()
        except Exception as error:  # raised again where the block ends
            self._error = error

    def _launch_until_stopped(self) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")

        def call(name: str, *arguments: Any) -> None:
            status = getattr(cuda, name)(*arguments)
            if status:
                raise RuntimeError(f"{name} gives CUDA error {status}")

        context, module, function, stream = (ctypes.c_void_p() for _ in range(4))
        cycles = ctypes.c_uint32(_CYCLES)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)  # the one that JAX uses too
        call("cuCtxSetCurrent", context)
        call("cuModuleLoadData", ctypes.byref(module), _HOLD)
        call("cuModuleGetFunction", ctypes.byref(function), module, b"hold")
        call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        sizes = itertools.cycle(_SIZES)
        while not self._stop.is_set():
            for threads, shared_bytes in itertools.islice(sizes, _QUEUED):
                grid, block = (_THREAD_BLOCKS, 1, 1), (threads, 1, 1)
                call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, parameters, None)
            call("cuStreamSynchronize", stream)
            self.launches += _QUEUED
        call("cuStreamDestroy_v2", stream)
        call("cuModuleUnload", module)
        call("cuDevicePrimaryCtxRelease_v2", 0)
