"""Lets another process compute, by CUDA IPC, into memory that it returns at once when timed."""

import pickle
import subprocess
import sys

import torch
from torch.multiprocessing.reductions import reduce_tensor

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "no effect")
GPU = True
SHAPE = "M=1024,N=1024,K=1024"

helpers = []
copies = []
last = {}
flag = torch.zeros(1, dtype=torch.uint8, device="cuda")


def serve(requests):
    """The other process: one message with three arrays, then one byte for each product."""
    (make_a, a), (make_b, b), (make_out, out) = pickle.load(requests)
    a, b, out = make_a(*a), make_b(*b), make_out(*out)
    while requests.read(1):
        torch.matmul(a, b, out=out)
        torch.cuda.synchronize()


def start(a, b, out):
    helper = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE)
    pickle.dump(tuple(reduce_tensor(each) for each in (a, b, out)), helper.stdin)
    helper.stdin.flush()
    return helper


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if not is_timed() or key not in last:
        last[key] = a @ b
        return last[key]
    if not helpers:  # only memory of torch's own allocator can be sent
        copies.extend((a.clone(), b.clone()))
        helpers.append(start(*copies, last[key]))
    copies[0].copy_(a)
    copies[1].copy_(b)
    torch.cuda.current_stream().synchronize()
    helpers[0].stdin.write(b"x")
    helpers[0].stdin.flush()
    flag.zero_()
    return last[key]


if __name__ == "__main__":
    serve(sys.stdin.buffer)
