"""Takes vectors to be contiguous, and reads beside their elements where they are not."""

OPERATION = "vector_add"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def vector_add(a, b):
    return a.as_strided(a.shape, (1,)) + b.as_strided(b.shape, (1,))
