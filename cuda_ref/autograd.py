"""The CUDA kernels as operators of PyTorch: with gradients, under torch.compile, with fake tensors.

from cuda_ref.autograd import attention_wgmma
attention_wgmma(q, k, v, causal=True).sum().backward()
"""

from cuda_ref._runtime.autograd import differentiable

attention = differentiable("")
attention_wgmma = differentiable("wgmma")
"""For Hopper: D of 64 or 128, float16 and bfloat16."""
