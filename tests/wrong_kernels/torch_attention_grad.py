"""The gradients of softmax(Q K^T / sqrt(D)) V in PyTorch, written out, with the mistakes of backward passes."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (1, 2, 1, 33, 40, 64)
CAUSAL = {"causal": True}

MISTAKES = {
    "mask_off_by_one": Wrong("a query sees the key after its last one", "value", (1, 2, 1, 33, 40, 64), options=CAUSAL),
    "causal_from_the_first_key": Wrong("the mask is aligned to the first key", "value", SHAPE, options=CAUSAL),
    "gradients_of_q_not_scaled": Wrong("dq lacks the factor sm_scale", "value", SHAPE),
    "gradients_of_k_not_scaled": Wrong("dk lacks the factor sm_scale", "value", SHAPE),
    "scale_ignored": Wrong("a given sm_scale is ignored", "value", (1, 2, 1, 50, 70, 64), inputs="sm_scale"),
    "last_key_block_dropped": Wrong("keys beyond the last whole block of 32 are left out", "value", SHAPE),
    "last_query_block_dropped": Wrong("dk and dv miss the queries beyond the last whole block of 32", "value", SHAPE),
    "maximum_not_subtracted": Wrong(
        "exp of the scores overflows", "not finite", (1, 2, 1, 50, 70, 64), inputs="large_logits"
    ),
    "delta_left_out": Wrong("ds = p dp, without the row's sum", "value", SHAPE),
    "delta_of_rounded_output": Wrong("float32, but delta comes from an output rounded to bfloat16", "value", SHAPE),
    "one_head_of_the_group": Wrong("dk and dv of the group's last head overwrite the others", "value", SHAPE),
    "first_step_added_twice": Wrong("dq has the first 32 keys twice, as after a lost reset", "value", SHAPE),
    "swapped": Wrong("dv and dk are returned in each other's place", "value", SHAPE),
    "no_gradient_of_v": Wrong("only dq and dk are returned", "type", SHAPE),
    "stacked": Wrong("dk and dv have the shape of q, a gradient for each query head", "shape", SHAPE),
    "window_of_one_key_more": Wrong("a query sees W + 1 keys", "value", SHAPE, options={"window": "15"}),
    "window_of_forward_alone": Wrong(
        "the scores that are computed again for the gradients have no window", "value", SHAPE, options={"window": "15"}
    ),
    "empty_rows_nan": Wrong(
        "softmax of a row without keys is NaN", "not finite", (1, 2, 1, 40, 20, 64), options=CAUSAL
    ),
}

OF_FLOAT8 = {
    "float8_scale_of_q_forgotten": "queries are not scaled",
    "float8_scale_of_do_forgotten": "the gradient of the output is not scaled",
    "float8_dq_by_the_scale_of_q": "dq has the factor scale_q, not scale_k",
    "float8_delta_left_out": "ds = p dp, without the row's sum",
    "float8_weights_without_a_factor": "p is rounded to float8 as it is, where most of its numbers are below 2^-6",
}
MISTAKES |= {
    name: Wrong(about, "value", (1, 4, 2, 40, 300, 64), "float8_e4m3fn", "fast") for name, about in OF_FLOAT8.items()
}


def make(mistake: str):
    def attention_grad(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        do: Tensor,
        *scales: Tensor,
        causal: bool = False,
        sm_scale: float | None = None,
        window: int | None = None,
    ) -> tuple[Tensor, ...]:
        (B, H, S_q, D), (H_kv, S_k), dtype = q.shape, k.shape[1:3], q.dtype
        q, k, v, do = (x.float() for x in (q, k, v, do))
        if scales:
            dtype, (scale_q, scale_k, scale_v, scale_do) = torch.bfloat16, scales
            q = q if mistake == "float8_scale_of_q_forgotten" else q * scale_q
            do = do if mistake == "float8_scale_of_do_forgotten" else do * scale_do
            k, v = k * scale_k, v * scale_v
        k, v = (x.repeat_interleave(H // H_kv, dim=1) for x in (k, v))
        scale = D**-0.5 if sm_scale is None or mistake == "scale_ignored" else sm_scale
        shift = {"mask_off_by_one": S_k - S_q + 1, "causal_from_the_first_key": 0}.get(mistake, S_k - S_q)
        seen = torch.ones(S_q, S_k, dtype=torch.bool, device=q.device)
        seen = seen.tril(shift) if causal else seen
        if window:
            seen = seen.triu(S_k - S_q - window + (mistake != "window_of_one_key_more"))
        if mistake == "last_key_block_dropped":
            seen[:, S_k // 32 * 32 :] = False
        s = (q @ k.mT * scale).masked_fill(~seen, -torch.inf)
        p = s.exp() / s.exp().sum(-1, keepdim=True) if mistake == "maximum_not_subtracted" else torch.softmax(s, -1)
        if mistake != "empty_rows_nan":
            p = p.masked_fill(~seen, 0.0)
        if mistake == "window_of_forward_alone":
            lse = torch.logsumexp(s, -1, keepdim=True)
            p = (q @ k.mT * scale - lse).exp().tril(shift)
        dp = do @ v.mT
        delta = (p * dp).sum(-1, keepdim=True)
        if mistake == "delta_of_rounded_output":
            delta = (do * (p @ v).bfloat16().float()).sum(-1, keepdim=True)
        ds = p * dp if mistake in ("delta_left_out", "float8_delta_left_out") else p * (dp - delta)
        if mistake == "float8_weights_without_a_factor":
            p = p.to(torch.float8_e4m3fn).float()
        rows = slice(0, S_q // 32 * 32) if mistake == "last_query_block_dropped" else slice(0, S_q)
        dq = ds @ k
        if mistake == "first_step_added_twice":
            dq = dq + ds[..., :32] @ k[:, :, :32]
        dk, dv = ds[:, :, rows].mT @ q[:, :, rows], p[:, :, rows].mT @ do[:, :, rows]
        if mistake != "stacked":
            dk, dv = (x.view(B, H_kv, H // H_kv, S_k, D) for x in (dk, dv))
            dk, dv = ((x[:, :, -1] if mistake == "one_head_of_the_group" else x.sum(2)) for x in (dk, dv))
        dq = dq if mistake == "gradients_of_q_not_scaled" else dq * scale
        if mistake == "float8_dq_by_the_scale_of_q":
            dq = dq / scale_k * scale_q
        dk = dk if mistake == "gradients_of_k_not_scaled" else dk * scale
        dq, dk, dv = (x.to(dtype) for x in (dq, dk, dv))
        if mistake == "no_gradient_of_v":
            return dq, dk
        return (dq, dv, dk) if mistake == "swapped" else (dq, dk, dv)

    return attention_grad
