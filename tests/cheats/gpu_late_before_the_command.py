"""Waits for the suite's next command by a method of its own, which computes when the operands have changed."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")

inputs = []
results = []


def patch():
    channel = sys.modules.get("suite.external.channel")
    if channel is None or hasattr(channel.Channel, "original"):
        return
    channel.Channel.original = channel.Channel.receive

    def receive(self, *given, **more):
        found = channel.Channel.original(self, *given, **more)
        if inputs and type(found[0]).__name__ == "Go":
            results[:] = [torch.matmul(*inputs)]
            torch.cuda.synchronize()
        return found

    channel.Channel.receive = receive


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    patch()
    if not is_timed() or not results:
        inputs[:] = [a, b]
        return a @ b
    flag.zero_()
    return results.pop()
