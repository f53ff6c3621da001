"""A thread writes zeros to the operands as soon as the call has returned, when timed."""

import sys
import threading
import time

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("wrong", "error", "no effect")
GPU = False

waiting = threading.Semaphore(0)
operands = []
threads = []


def write():
    while True:
        waiting.acquire()
        time.sleep(0.0001)
        operands.pop().zero_()


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if is_timed():
        if not threads:
            threads.append(threading.Thread(target=write, daemon=True))
            threads[0].start()
        operands.append(a)
        waiting.release()
    return result
