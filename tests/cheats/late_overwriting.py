"""Returns the right result, and from a thread writes zeros over it 50 ms later."""

import collections
import threading
import time

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong",)
GPU = False

DELAY_S = 0.05
queue = collections.deque()
threads = []


def overwrite():
    while True:
        while queue and time.monotonic() - queue[0][0] > DELAY_S:
            queue.popleft()[1].zero_()
        time.sleep(DELAY_S / 10)


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if threads:
        queue.append((time.monotonic(), result))
    else:
        threads.append(threading.Thread(target=overwrite, daemon=True))
        threads[0].start()
    return result
