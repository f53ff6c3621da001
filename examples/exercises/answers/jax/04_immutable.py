"""Exercise jax/04_immutable: arrays never change.

out[0] = x[0], out[i] = x[i] - x[i - 1]. x[1:] -= ... is an error; x.at[1:].add(y) returns a new array instead. Under
jit XLA writes it in place where the old one is not needed any more.
"""

framework = "jax"


def differences(x):
    """[N] -> [N]"""
    # TODO: return each element of x minus the one before it; the first stays as it is.
    return x.at[1:].add(-x[:-1])
    # END
