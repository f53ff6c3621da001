"""Mutants that survive: why each is right although it was changed, or what no plain run shows."""

from __future__ import annotations

import re

from validation.mutation import Mutant

FLOAT8 = "float8 is part of a run only if it is named"
OF_ONE = "a row of one element: its softmax is 1, and its distance from the mean is 0"
SATURATES = "where a number leaves the range of float16, or is infinite, the sigmoid is 0 or 1 anyway"
COPIES = "the other branch computes the same"
ON_A_GPU = "the branch is that of a GPU"
GATES = "the axis has four gates: a multiple of 4"
PARTS = "the axis has three parts: never one row"
ONE_TYPE = "all operands have the same type"
NO_DROPOUT = "a share of dropout, which has no effect outside of training"
ONE_KEY = "the only key has the weight 1, with any score"
EVEN = "the axis has two of each pair: an even number"
SLOPE = "only the gradient uses the slope"
EMPTY = "the branch of an empty result, which no telling case has"
ORDER = "the gradient depends on the order of the pixels alone"
PADDING = "a window of minus infinity alone: XLA gives its gradient to the padding, so no telling case has one"
UNSPECIFIED = "a NaN in x is not specified"
NO_BFLOAT16 = "no operand is bfloat16"
EXACT_CODES = "a float8 number is exact in 16 bits"
INFINITE_SCALES = "infinite scales are not specified: the result depends on the order of the products"
HIDDEN = "values that are not finite under a mask: libraries give NaN there, so no telling case has them"
INFINITE_LOGIT = "with an infinite logit a logsumexp is infinite and a softmax NaN: libraries use both"
KEY_GRADIENT = "with one key dv is a sum of do, and the other gradients are 0: neither key nor value enters"
AS_MANY_KEYS = "wrong only with as many keys as heads of queries that share keys, which no telling case has"
NO_FEATURES = "heads without features, which no telling case has"
ONE_COLUMN = "with one column the loss and its gradients are 0"
ONE_NUMBER = "only a q with one element in all shows it"
NO_COLUMN = "a target outside [0, V): no family has one"
ANY_BLOCK = "any number of columns in a block is right"
ONE_BLOCK = "a block has at least 8,192 columns, which are all columns of a telling case"
EXACT_CODE = "a code of 4 bits is exact in float16"
EXACT = "a code of 8 bits is exact in bfloat16"
TILES = "only oneDNN's bfloat16 tiles (AMX), which not every CPU has, need the other branch"
CLAMPED = "a slice of torch ends at the last row, and the only expert has them all"
INTEGERS = "an integer is never NaN"
MASKED = "slots without a token have the weight 0, whichever finite numbers stand there"
NO_TOKENS = "a cache of one page has no tokens: one page belongs to no sequence"
INFINITE_KEY = "an infinite key makes scores infinite: libraries give NaN or 0 there"
IN_FLOAT32 = "the moments are float32"
INFINITE_MOMENT = "an infinite m is not specified: m + (1 - beta1) (g - m) is NaN there"
INFINITE_WEIGHT = "an infinite weight is not specified: the sums of a row are infinite, and their difference may be NaN"

EQUIVALENT: tuple[tuple[str, str, str], ...] = (
    ("matmul|attention(_grad)?", r".*(float8|scale_([abqkv]|do)|'fast')", FLOAT8),
    ("softmax|layer_norm", r"operand 0: axis 1: wrong if its size is 1$", OF_ONE),
    ("layer_norm", r"operand 1: axis 0: wrong if its size is 1$", OF_ONE),
    ("linear_sigmoid(_grad)?", r"operand 2: (through float16|infinities made finite)", SATURATES),
    ("lstm", r"operand 3: (through float16|infinities made finite)", SATURATES),
    ("lstm", r"operand [123]: axis 0: (tail of 4|odd last|wrong if its size is (1|odd))", GATES),
    ("sigmoid", r"operand 0: (through float16|infinities made finite)", SATURATES),
    ("sigmoid", r"sigmoid: if x.is_contiguous", COPIES),
    ("sigmoid", r"sigmoid: 1 -> 2( \(2\))?$", "NumPy takes any negative size for -1"),
    ("rms_norm|layer_norm", r"(rms|layer)_norm: if x.size == 0", COPIES),
    ("conv2d", r"conv2d: stride > 1 -> stride >= 1|conv2d: 1 -> 2 \(3\)", COPIES),
    ("conv2d", r"conv2d: if x.dtype == torch.bfloat16 and|conv2d: x.dtype == torch.bfloat16 -> ", TILES),
    ("multi_head_attention", r"operand 1: axis 0: wrong if its size is 1$", PARTS),
    ("multi_head_attention", r"layer: (x.dtype != torch.float32|0 -> 1 \(2\)|0.0 -> 1.0)", ON_A_GPU),
    ("lstm", r"lstm: 0 -> 1 \(4\)", ONE_TYPE),
    ("lstm", r"lstm: 0.0 -> 1.0", NO_DROPOUT),
    (".*", r".*is_cuda", ON_A_GPU),
    ("attention", r"_weighted_sum", HIDDEN),
    ("paged_attention", r"paged_attention: q.dtype == torch.float32", ON_A_GPU),
    ("paged_attention", r"paged_attention: if (out.size == 0|q.numel\(\) == 0|q.dtype == torch.float32)", COPIES),
    ("paged_attention", r"paged_attention: (keys|values).float\(\).*half", EXACT_CODES),
    ("paged_attention", r"_tokens: (0 -> 1|0.0 -> 1.0)$", MASKED),
    ("paged_attention", r"_tokens: if found.element_size\(\) == 1", "torch fills float8 on a CPU"),
    ("paged_attention", r"operand [12]: axis 0: wrong if its size is 1$", NO_TOKENS),
    ("paged_attention", r"operand 1: infinities made finite$", INFINITE_KEY),
    ("paged_attention", r"paged_attention: 0 -> 1$", ONE_NUMBER),
    ("paged_attention", r"_tokens: 1 -> 2 \(2\)", "NumPy takes any negative size for -1"),
    ("attention(_grad)?", r"attention(_grad)?: [qk].float\(\) ->", FLOAT8),
    ("attention", r"attention: (if q.numel\(\)|1 -> 2 \(3\))", COPIES),
    ("attention", r"attention: 0 -> 1$", ONE_NUMBER),
    ("attention(_grad)?", r"attention(_grad)?: (x if aligned|q.dtype == torch.float32 ->)", ON_A_GPU),
    ("rope", r"operand [01]: axis 3: (odd last|wrong if its size is (1|odd)$)", EVEN),
    ("rope", r"rope: sin.astype.* -> sin.astype.* / ", COPIES),
    ("silu_mul", r"gate: (1.0 -> 1.5$|LINEAR \* \(1|1 [-+]|1 -> 2$|3 )", SLOPE),
    ("(rms|layer)_norm_grad", r"(rms|layer)_norm_grad: if x.size == 0", COPIES),
    ("(rms|layer)_norm_grad", r"(rms|layer)_norm_grad: 1 -> 2$", ON_A_GPU),
    ("layer_norm_grad", r"operand (0: axis 1|1: axis 0): wrong if its size is 1$", OF_ONE),
    ("layer_norm_grad", r"operand 1: infinities made finite$", INFINITE_WEIGHT),
    ("adam_step", r"operand 2: infinities made finite$", INFINITE_MOMENT),
    ("adam_step", r"operand [23]: through float16 if bfloat16$", IN_FLOAT32),
    ("max_pool2d", r"max_pool2d: (if x.numel|0 -> 1 \(2\)|3 -> 4)", EMPTY),
    ("max_pool2d_grad", r"max_pool2d_grad: if x.numel", EMPTY),
    ("max_pool2d_grad", r"max_pool2d_grad: (max\(window\) >|-np.inf ->|1 -> 2 \(6\))", COPIES),
    ("max_pool2d_grad", r"operand 0: (axis [23]: wrong if its size is 1$|infinities made finite)", ORDER),
    ("max_pool2d_grad", r"max_pool2d_grad: -1 -> 1$", PADDING),
    ("max_pool2d_grad", r"operand 0: NaN taken for 0", UNSPECIFIED),
    ("attention", r"operand 1: axis 2: wrong if its size is 1$", ONE_KEY),
    ("attention_grad", r"operand [12]: axis 2: wrong if its size is 1$", KEY_GRADIENT),
    ("attention_grad", r"attention_grad: 1 -> 2 \(2\)", AS_MANY_KEYS),
    ("attention_grad", r"attention_grad: max\(D, 1\)", NO_FEATURES),
    ("attention_grad", r"attention_grad: (q.dtype == torch.float32 ->|x if aligned)", ON_A_GPU),
    ("(grouped_)?block_scaled_matmul", r"operand [02]: rounded to bfloat16$", EXACT_CODES),
    ("block_scaled_matmul", r"block_scaled_matmul: [ab](\[:, span\]\.astype|\.float)\(.*(16|half)", EXACT_CODES),
    ("(grouped_)?block_scaled_matmul", r"operand [0-3]: through float16 if bfloat16$", NO_BFLOAT16),
    ("(grouped_)?block_scaled_matmul", r"result 0: rounded to bfloat16$", "the result is bfloat16"),
    ("(grouped_)?block_scaled_matmul", r"operand [13]: infinities made finite$", INFINITE_SCALES),
    ("int4_matmul", r"operand 2: infinities made finite$", INFINITE_SCALES),
    ("int4_matmul", r"int4_matmul: (np.stack|zero.astype).*float16", EXACT_CODE),
    ("linear_cross_entropy", r"operand [01]: infinities made finite", INFINITE_LOGIT),
    ("linear_cross_entropy", r"operand 1: axis 0: wrong if its size is 1$", ONE_COLUMN),
    ("linear_cross_entropy", r"linear_cross_entropy: 0 -> 1 \(2\)", ONE_COLUMN),
    ("linear_cross_entropy", r"by_blocks: (target [<-]|first:first \+ columns)", ONE_BLOCK),
    ("linear_cross_entropy", r"by_blocks: (max\(|256 ->|LOGITS //|1 -> 2$)", ANY_BLOCK),
    ("linear_cross_entropy", r"by_blocks: (0.0 -> 1.0|\(torch.arange.*half)|linear_cross_entropy: if T == 0", COPIES),
    ("linear_cross_entropy", r"product: (a.element_size|2 -> 3)", ON_A_GPU),
    (".*quantize", r"result 0: rounded to bfloat16", EXACT),
    (".*quantize", r"(quantize|coded): np.nan_to_num.*float16", EXACT),
    ("rms_norm_quantize", r"rms_norm_quantize: max\(N, 1\) -> ", EMPTY),
    ("grouped_matmul(_grad)?", r"operand 2: axis 0: wrong if its size is 1$", CLAMPED),
    ("grouped_block_scaled_matmul", r"operand 4: axis 0: wrong if its size is 1$", CLAMPED),
    ("top_k", r"result 1: NaN taken for 0", INTEGERS),
    ("quantize", r".*max\((dim|axis)=\(1, 3\)\).clip\(0\)", COPIES),
    ("cross_entropy", r"operand 0: axis 1: wrong if its size is 1$", ONE_COLUMN),
    ("cross_entropy", r"cross_entropy: target >= V", NO_COLUMN),
    ("cross_entropy", r"cross_entropy: if logits.numel\(\) == 0", COPIES),
)
"""Patterns of the operation and of the mutant's name, with the reason."""


IN_FLOAT8: tuple[tuple[str, str, str], ...] = (
    (".*", r"operand [0-3]: through float16 if bfloat16$", NO_BFLOAT16),
    (".*", r"operand [0-3]: rounded to bfloat16$", EXACT_CODES),
    (".*", r".*\.float\(\) -> .*\.half\(\)\.float\(\)$", EXACT_CODES),
    (".*", r"result [012]: rounded to bfloat16$", "the result is bfloat16"),
)
"""The same where all cases are of float8."""


def reason_of(mutant: Mutant, dtype: str = "") -> str:
    """Return why a mutant may survive; empty if that is not known. dtype: that of all cases; empty if it is not one."""
    known = EQUIVALENT
    if dtype == "float8_e4m3fn":
        known = (*(each for each in EQUIVALENT if each[2] != FLOAT8), *IN_FLOAT8)
    for operation, name, reason in known:
        if re.fullmatch(operation, mutant.operation) and re.match(name, mutant.name, re.DOTALL):
            return reason
    return ""
