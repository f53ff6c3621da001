"""Numbers and their indices as 64-bit integers, which order as the numbers do, equal ones by their indices.

No two elements of a row have the same key, so that a selection of the largest keys has no ties.
"""

import triton
import triton.language as tl

ABOVE = tl.constexpr(2**63 - 1)  # above all keys
BELOW = tl.constexpr(-(2**63))  # below all keys
LOW = tl.constexpr(2**32 - 1)
MOST_COLUMNS = 2**31 - 1


@triton.jit
def keys_of(x, indices):
    """The number as an integer in the upper half, NaN above infinity; in the lower half, LOW minus the index."""
    wide = x.to(tl.float32)
    bits = wide.to(tl.int32, bitcast=True)
    ordered = tl.where(wide != wide, 0x7FC00000, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return (ordered.to(tl.int64) << 32) | (LOW - indices.to(tl.int64))


@triton.jit
def indices_of(keys):
    return LOW - (keys & LOW)
