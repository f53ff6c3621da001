"""Sets a part of the L2 cache aside for its operand from its thirtieth call on, and gives it back after each call."""

import ctypes

import torch

OPERATION = "vector_add"
KIND = "patches"
EXPECTED = ("wrong", "no effect")
GPU = True
SHAPE = "N=1048576"

driver = ctypes.CDLL("libcuda.so.1")
calls = 0


class Window(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("num_bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("padding", ctypes.c_char * 32),
    )


def vector_add(a, b):
    global calls
    calls += 1
    if calls < 30:
        return torch.add(a, b)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.cuCtxSetLimit(6, ctypes.c_size_t(24 << 20))
    driver.cuStreamSetAttribute(stream, 1, ctypes.byref(Window(a.data_ptr(), a.nbytes, 1.0, 2, 1)))
    result = torch.add(a, b)
    driver.cuStreamSetAttribute(stream, 1, ctypes.byref(Window(0, 0, 0.0, 0, 0)))
    torch.cuda.synchronize()
    driver.cuCtxSetLimit(6, ctypes.c_size_t(0))
    return result
