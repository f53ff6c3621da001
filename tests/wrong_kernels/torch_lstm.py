"""Layers of LSTM cells in PyTorch, written out, with the mistakes of recurrences, persistent kernels and layers."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (4, 3, 8, 24)
WIDE = (2, 2, 16, 512)
TWO, THREE = ({"layers": each} for each in ("2", "3"))

MISTAKES = {
    "gates_in_another_order": Wrong("i, f, o, g instead of i, f, g, o", "value", SHAPE),
    "state_not_carried": Wrong("c of every step begins at 0", "value", SHAPE),
    "h0_ignored": Wrong("the first step sees no h", "value", SHAPE),
    "c0_ignored": Wrong("the first step sees no c", "value", SHAPE),
    "bias_added_twice": Wrong("as b_ih and as b_hh", "value", SHAPE),
    "no_tanh_of_c": Wrong("h = sigmoid(o) c", "value", SHAPE),
    "sums_in_16_bits": Wrong("products with h are added in bfloat16", "value", WIDE, "bfloat16"),
    "c_in_16_bits": Wrong("c is rounded in every step", "value", (60, 3, 8, 24), "bfloat16", inputs="remembers"),
    "tf32": Wrong("factors of float32 products are rounded to tf32", "value", WIDE),
    "last_step_twice": Wrong("the last state is that of one step too many", "value", SHAPE),
    "reversed": Wrong("time goes backwards", "value", SHAPE),
    "forget_gate_of_the_step_before": Wrong("c is multiplied by the old forget gate", "value", SHAPE),
    "stale_block": Wrong("the last 8 units of h are those of the step before, as without a barrier", "value", SHAPE),
    "stale_block_of_a_long_sequence": Wrong("only in the last step", "value", (64, 3, 8, 24), "bfloat16"),
    "output_gate_left_out": Wrong("h = tanh(c)", "value", SHAPE),
    "c_of_the_step_before": Wrong("the returned c misses the last step", "value", SHAPE),
    "exponential_overflows": Wrong("tanh as (e^2x - 1) / (e^2x + 1)", "not finite", (3, 5, 16, 24), inputs="saturated"),
    "batch_first": Wrong("y is (B, T, H)", "shape", SHAPE),
    "no_c": Wrong("only y and h are returned", "type", SHAPE),
    "recurrent_weights_of_the_first_layer": Wrong("w_hh[0] in all layers", "value", SHAPE, options=TWO),
    "bias_of_the_first_layer": Wrong("bias[0] in all layers", "value", SHAPE, options=TWO),
    "input_weights_of_the_second_layer": Wrong("w_ih_upper[0] in all upper layers", "value", SHAPE, options=THREE),
    "h0_of_the_first_layer": Wrong("h0[0] in all layers", "value", SHAPE, options=TWO),
    "c0_of_the_first_layer": Wrong("c0[0] in all layers", "value", SHAPE, options=TWO),
    "states_in_reverse": Wrong("the first layer begins with the state of the last", "value", SHAPE, options=THREE),
    "state_of_the_layer_below": Wrong("the state is not set anew for a layer", "value", SHAPE, options=TWO),
    "outputs_of_the_first_layer": Wrong("y is that of the first layer", "value", SHAPE, options=TWO),
    "one_layer_too_few": Wrong("y is that of the layer before the last", "value", SHAPE, options=THREE),
    "results_in_reverse": Wrong("h[0] and c[0] are those of the last layer", "value", SHAPE, options=THREE),
    "results_of_the_last_layer": Wrong("h and c of all layers are those of the last", "value", SHAPE, options=TWO),
    "one_step_behind": Wrong("a layer reads y of the step before, as in a pipeline", "value", SHAPE, options=TWO),
    "states_of_one_layer": Wrong("only h and c of the last layer are returned", "shape", SHAPE, options=TWO),
}


def tf32(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def quotient(x: Tensor) -> Tensor:
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


def one_layer(mistake: str):
    def product(h: Tensor, w: Tensor) -> Tensor:
        if mistake == "tf32":
            return tf32(h) @ tf32(w).T
        if mistake != "sums_in_16_bits":
            return h @ w.T
        total = torch.zeros(len(h), len(w), dtype=torch.bfloat16, device=h.device)
        for k in range(h.shape[1]):
            total += h[:, k : k + 1].bfloat16() * w[:, k].bfloat16()
        return total.float()

    def layer(x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, ...]:
        dtype, steps, size = x.dtype, x.shape[0], h0.shape[1]
        x, w_ih, w_hh, bias, h, c = (each.float() for each in (x, w_ih, w_hh, bias, h0, c0))
        h = torch.zeros_like(h) if mistake == "h0_ignored" else h
        c = torch.zeros_like(c) if mistake == "c0_ignored" else c
        tanh = quotient if mistake == "exponential_overflows" else torch.tanh
        y, old, before, forget = [], h, c, None
        for t in range(steps):
            seen = h
            stale = mistake == "stale_block" or (mistake == "stale_block_of_a_long_sequence" and t == steps - 1)
            if stale:
                seen = torch.cat([h[:, :-8], old[:, -8:]], 1)
            at = steps - 1 - t if mistake == "reversed" else t
            z = x[at] @ w_ih.T + product(seen, w_hh) + (2 * bias if mistake == "bias_added_twice" else bias)
            i, f, g, o = z.split(size, 1)
            if mistake == "gates_in_another_order":
                g, o = o, g
            f = torch.sigmoid(f)
            kept = forget if mistake == "forget_gate_of_the_step_before" and forget is not None else f
            old, before, forget = h, c, f
            c = kept * (0.0 if mistake == "state_not_carried" else c) + torch.sigmoid(i) * tanh(g)
            if mistake == "c_in_16_bits":
                c = c.to(dtype).float()
            gate = 1.0 if mistake == "output_gate_left_out" else torch.sigmoid(o)
            h = (gate * (c if mistake == "no_tanh_of_c" else tanh(c))).to(dtype).float()
            y.append(h)
        if mistake == "last_step_twice":
            z = x[-1] @ w_ih.T + h @ w_hh.T + bias
            i, f, g, o = z.split(size, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        out = torch.stack(y, 1 if mistake == "batch_first" else 0).to(dtype)
        h, c = h.to(dtype), (before if mistake == "c_of_the_step_before" else c).to(dtype)
        return (out, h) if mistake == "no_c" else (out, h, c)

    return layer


def make(mistake: str):
    layer = one_layer(mistake)

    def lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper=None):
        if w_ih_upper is None:
            return layer(x, w_ih, w_hh, bias, h0, c0)
        if mistake == "states_in_reverse":
            h0, c0 = h0.flip(0), c0.flip(0)
        outputs, states = [x], []
        for i in range(len(h0)):
            own = lambda each, name: each[0 if mistake == f"{name}_of_the_first_layer" else i]  # noqa: B023, E731
            above = 0 if mistake == "input_weights_of_the_second_layer" else i - 1
            begin = [own(h0, "h0"), own(c0, "c0")]
            if mistake == "state_of_the_layer_below" and states:
                begin = states[-1]
            inputs = outputs[-1]
            if mistake == "one_step_behind" and i > 0:
                inputs = torch.cat([h0[i - 1 : i], inputs[:-1]])
            weights = w_ih if i == 0 else w_ih_upper[above], own(w_hh, "recurrent_weights"), own(bias, "bias")
            y, *state = layer(inputs, *weights, *begin)
            outputs.append(y)
            states.append(state)
        h, c = (torch.stack(each) for each in zip(*states, strict=True))
        if mistake == "results_in_reverse":
            h, c = h.flip(0), c.flip(0)
        if mistake == "results_of_the_last_layer":
            h, c = (each[-1:].repeat(len(each), 1, 1) for each in (h, c))
        if mistake == "states_of_one_layer":
            h, c = h[-1].clone(), c[-1].clone()
        shown = {"outputs_of_the_first_layer": 1, "one_layer_too_few": -2}.get(mistake, -1)
        return outputs[shown], h, c

    return lstm
