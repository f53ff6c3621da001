"""PyTorch's own kernels and the vendor libraries behind them: the lines to beat. One file a line.

Precision is set for each call and put back, and a library asked for by name either runs or says why it cannot:
PyTorch's silent choices, of arithmetic or of kernel, are never left in charge where they change what a row means.
"""
