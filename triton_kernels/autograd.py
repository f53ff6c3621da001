"""The Triton kernels as operators of PyTorch: with gradients, under torch.compile, with fake tensors.

from triton_kernels.autograd import attention
attention(q, k, v, causal=True).sum().backward()
"""

from triton_kernels._runtime.autograd import differentiable

attention = differentiable("")
attention_gluon = differentiable("gluon")
"""For Hopper: D = 64 or 128, float16 and bfloat16."""
attention_auto = differentiable("auto")
"""Chooses the kernels by shapes, dtype and device."""
