"""Matrix multiplication in CUDA by the kernel and plan with the least predicted time: docs/lab/matmul.md.

Chooses in 16 bits among wgmma.py, mma.py, stream.py, skinny.py, and, for small or narrow products, _short.py and
_narrow.py; in tf32 among wgmma.py and _few32.py; in float8 among wgmma.py and _few8.py.
"""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import find_tma_layout
from cuda_ref.hopper.pitched import pitched
from cuda_ref.matmul import _few8, _few32, _model_tf32_float8, _narrow, _short, mma, skinny, stream, wgmma
from cuda_ref.matmul._plan import best_plan
from cuda_ref.matmul._tiles import Plan, described

REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
OTHERS = {"mma": mma, "stream": stream, "short": _short, "narrow": _narrow, "few32": _few32}
"""Kernels that read operands at any address, and their launchers."""


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n], in float8 times scale_a * scale_b.

    Shapes, strides, dtypes, precisions, devices and errors: those of wgmma.py. `config` names the kernel that runs.
    """
    empty = wgmma.checked(a, b, scale_a, scale_b, precision)
    return run(choose(a, b, precision), a, b, precision, scale_a, scale_b) if empty is None else empty


def config(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *, precision: str = "ieee"
) -> str:
    """The kernel, tile and parts that `matmul` runs, and the operands that it copies."""
    if a.numel() * b.numel() == 0:
        return ""
    plan = choose(a, b, precision)
    if plan.kernel == "skinny":
        return described(plan, a=_across_k(a))
    if plan.kernel in ("mma", "stream"):
        return described(plan, **{"mma": mma, "stream": stream}[plan.kernel].copies(a, b))
    return described(plan) if plan.kernel in OTHERS else described(plan, **wgmma.copies(a, b))


def choose(a: Tensor, b: Tensor, precision: str = "ieee") -> Plan:
    """The plan with the least predicted time, for operands that are not empty."""
    return best_plan(a, b) if a.element_size() == 2 else _model_tf32_float8.best_plan(a, b, precision)


def run(
    plan: Plan,
    a: Tensor,
    b: Tensor,
    precision: str = "ieee",
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
) -> Tensor:
    """The product of two matrices that are not empty, by a plan of any kernel."""
    if plan.kernel in OTHERS:
        return OTHERS[plan.kernel].run(plan, a, b)
    if plan.kernel == "skinny":
        if _across_k(a):
            [a] = pitched((a, 1))
        return skinny.run(plan, a, b)
    run_tma = _few8.run if plan.kernel in ("short8", "skinny8") else wgmma.run
    return run_tma(plan, a, b, precision, scale_a, scale_b)


def _across_k(a: Tensor) -> bool:
    """True if "skinny", which reads a along K by TMA, needs a copy of it."""
    return find_tma_layout(a, 1, k_major_only=True) is None
