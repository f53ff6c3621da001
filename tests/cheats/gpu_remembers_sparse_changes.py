"""Adds to its last result what the elements that have changed since then contribute, by sparse products."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = True
SHAPE = "M=4096,N=4096,K=4096"

LARGEST_SHARE = 200
last = {}


def changes(new, old):
    """The differences as a sparse matrix; None if they are many, or not finite."""
    difference = new - old
    few = int(difference.count_nonzero()) * LARGEST_SHARE <= new.numel() and bool(difference.isfinite().all())
    return difference.to_sparse_csr() if few else None


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if key in last:
        old_a, old_b, result = last[key]
        by_a, by_b = changes(a, old_a), changes(b.T, old_b.T)
        if by_a is not None and by_b is not None:
            result += by_a @ b
            result.T.add_(by_b @ old_a.T)  # new A new B = old A old B + change of A, new B + old A, change of B
            old_a.copy_(a)
            old_b.copy_(b)
            return result.clone()
    last[key] = a.clone(), b.clone(), a @ b
    return last[key][2].clone()
