"""A step of Adam in Triton: one program updates a block of parameters and their moments in one pass."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_adam_step
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
BLOCK = 2**14 if INTERPRET else 1024  # parameters of a program


@triton.jit
def adam_step_kernel(
    param_ptr, grad_ptr, m_ptr, v_ptr, new_param_ptr, new_m_ptr, new_v_ptr, N,
    beta1, rest1, beta2, rest2, rate, root_factor, eps, decay,
    DECOUPLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK consecutive elements of all three results.

    rest1, rest2: 1 - beta, which would lose digits in float32. rate: lr over the correction of m. root_factor: 1 over
    the root of the correction of v. decay: the factor of a parameter if DECOUPLED, else its weight in the gradient.
    """
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    param = tl.load(param_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    m = tl.load(m_ptr + offs, mask=mask, other=0.0)
    v = tl.load(v_ptr + offs, mask=mask, other=0.0)
    if DECOUPLED:
        param *= decay
    else:
        grad += decay * param
    m = beta1 * m + rest1 * grad
    v = beta2 * v + rest2 * grad * grad
    param -= rate * tl.div_rn(m, tl.sqrt_rn(v) * root_factor + eps)
    tl.store(new_param_ptr + offs, param, mask=mask)
    tl.store(new_m_ptr + offs, m, mask=mask)
    tl.store(new_v_ptr + offs, v, mask=mask)


@kept
def adam_step(
    param: Float[Tensor, "..."],
    grad: Float[Tensor, "..."],
    m: Float[Tensor, "..."],
    v: Float[Tensor, "..."],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, "..."]]:
    """(param, m, v) after step number `step`, from 1 on, of Adam, or of AdamW if `decoupled`.

    g = grad + weight_decay param, or, decoupled, param (1 - lr weight_decay) first; m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2; param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps).

    Shapes: any, the same for all. torch first copies an input that is not contiguous. The results are contiguous.
    Dtypes: param and grad float32, float16 or bfloat16; m and v float32. All is computed in float32, and each result
    rounded once.
    Tail: elements beyond the last are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or steps.
    Source: Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
    """
    shape = check_adam_step(param, grad, m, v, step=step)
    inputs = [each.contiguous() for each in (param, grad, m, v)]
    results = [empty_output(shape, each.dtype, each.device) for each in (param, m, v)]
    N = param.numel()
    if N > 0:
        rate, root_factor = lr / (1.0 - beta1**step), (1.0 - beta2**step) ** -0.5
        decay = 1.0 - lr * weight_decay if decoupled else weight_decay
        with device_of(param):
            launch(
                adam_step_kernel, (triton.cdiv(N, BLOCK),), *inputs, *results, N,
                beta1, 1.0 - beta1, beta2, 1.0 - beta2, rate, root_factor, eps, decay, decoupled, BLOCK,
            )  # fmt: skip
    return finished_output(results[0], param.dtype), results[1], results[2]
