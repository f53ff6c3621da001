"""Shared by the tests of `--with`: kernels in files, and `check`, which runs one in a worker."""

from __future__ import annotations

from pathlib import Path

import torch

from suite import ops
from suite.checking.check import check_calls
from suite.checking.problem import Problem
from suite.external.fork_server import ExternalForkServer
from suite.external.implementation import ExternalImplementation, from_files
from suite.external.process import ExternalProcess, RaisedError
from suite.external.protocol import About, Facts
from suite.external.remote import RemoteCaller, SharedCase
from suite.hardware.device import Device
from suite.problem.case import Case
from suite.worker.pool import Pool
from suite.worker.protocol import CheckReply, CheckRequest, Failed

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((100,))
RIGHT = "def vector_add(a, b):\n    return a + b\n"
CUDA_FILE = """#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 256)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add<T><<<grid, 256, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n,
                                         stride_a, stride_b);
    });
}
"""
TRITON_FILE = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(a + offs, offs < N) + tl.load(b + offs, offs < N), offs < N)


def vector_add(a, b):
    out = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 64),)](a, b, out, a.numel(), BLOCK=64)
    return out
"""


def external(path: Path, operation: str = "vector_add") -> ExternalImplementation:
    """The implementation of `operation` in a file."""
    (found,) = from_files([path], [ops.get(operation)])[operation]
    return found


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def check(pool: Pool, implementation: ExternalImplementation, case: Case = CASE) -> CheckReply | Failed:
    return pool.ask(CheckRequest(case, implementation.reference, 0), timeout_s=60.0)


class SharedProcess:
    """One process for several files, which share one only here: what one leaves behind, the next would see."""

    def __init__(self, server: ExternalForkServer) -> None:
        self.process = ExternalProcess(server.fork, CPU, on_wait=lambda: None)
        self.process.wait_until_ready()

    def close(self) -> None:
        self.process.close()

    def check(self, implementation: ExternalImplementation, case: Case = CASE) -> CheckReply | Failed:
        reference = implementation.reference
        shared = SharedCase(self.process, Problem(case, 0, torch.device("cpu")))
        try:
            result = check_calls(
                RemoteCaller(shared, reference), shared.problem, claims_determinism=implementation.deterministic
            )
        except RaisedError as error:
            return CheckReply("unsupported", str(error)) if error.kind == "unsupported" else Failed(str(error), None)
        remarks = self.process.ask(About(reference), Facts).remarks
        return CheckReply("ok" if result.agrees else "wrong", "; ".join(filter(None, (result.reason, *remarks))))


def status(reply: CheckReply | Failed) -> str:
    return reply.status if isinstance(reply, CheckReply) else "error"
