"""Computes in a generator that lives from call to call: each call sends it operands and takes a result."""

OPERATION = "matmul"
TWIN_OF = "remembers_in_order"
GPU = False


def products():
    result = None
    while True:
        a, b = yield result
        result = a @ b


def started(generator):
    next(generator)
    return generator


running = started(products())


def matmul(a, b, *, precision="ieee"):
    return running.send((a, b))
