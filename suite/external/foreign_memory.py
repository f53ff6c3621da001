"""Reads the memory of another process, which the system allows for processes of the same user that this one started."""

from __future__ import annotations

import ctypes
import errno
import os

import torch

MAX_BYTES = 1 << 30
"""Largest number of bytes of one system call, which may read less."""


class _Span(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.process_vm_readv.restype = ctypes.c_ssize_t


def read(pid: int, address: int, into: torch.Tensor) -> None:
    """Copy the bytes at `address` of the process into `into`, a tensor without gaps on the CPU.

    Raises `OSError` if they are not all memory that can be read, or if the system does not allow it.
    """
    done = 0
    while done < into.nbytes:
        nbytes = min(MAX_BYTES, into.nbytes - done)
        ours, theirs = _Span(into.data_ptr() + done, nbytes), _Span(address + done, nbytes)
        found = _LIBC.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if found <= 0:
            number = ctypes.get_errno() if found < 0 else errno.EFAULT
            raise OSError(number, os.strerror(number))
        done += found
