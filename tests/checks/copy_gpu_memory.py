#!/usr/bin/env python3
"""A neighbour on a GPU: copies its memory to and fro by the driver's API until it is ended. Says once what it moves while it is alone.

    tests/checks/copy_gpu_memory.py [--device 0] [--mib 1024]
"""

import argparse
import ctypes
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--mib", type=int, default=1024)
    arguments = parser.parse_args()
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *values):
        result = getattr(cuda, name)(*values)
        if result != 0:
            raise SystemExit(f"{name}: error {result}")

    size = ctypes.c_size_t(arguments.mib << 20)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), arguments.device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for buffer in buffers:
        call("cuMemAlloc_v2", ctypes.byref(buffer), size)
    copies = 64  # in flight: the device does not wait for the host
    for turn in range(1 << 60):
        begin = time.monotonic()
        for i in range(copies):
            call("cuMemcpyDtoDAsync_v2", buffers[i % 2], buffers[1 - i % 2], size, None)
        call("cuStreamSynchronize", None)
        if turn == 1:
            print(f"{2 * copies * size.value / (time.monotonic() - begin) * 1e-9:.0f} GB/s read and written", flush=True)


if __name__ == "__main__":
    main()
