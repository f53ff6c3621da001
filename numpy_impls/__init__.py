"""The operations in NumPy, on the CPU: the line that needs no compiler and no device. One file an operation.

bfloat16 is the dtype that ml_dtypes gives to NumPy. 16-bit inputs are computed in float32 and rounded once at the
end.
"""
