"""Tiles of gluon.py: their assignment to programs, and their position in the output."""

import heapq
from functools import lru_cache

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels.attention._configs_gluon import TILE_COST

Sizes = tuple[int, int, int, int, int, int, int]
captured: dict[tuple[Sizes, torch.device], Tensor] = {}
"""Tables whose addresses are captured in CUDA graphs. They are never freed, since a graph may run at any time."""


def tile_lists(
    programs: int, heads: int, group: int, S_q: int, S_k: int, BLOCK_M: int, BLOCK_N: int
) -> list[list[int]]:
    """The tiles of each program under a causal mask: the next tile goes to the program with the least work so far.

    An atomic counter gives nearly the same order, but must be reset before each launch; fixed lists need no counter.
    Arguments: programs; the sizes of the problem and of the tiles, as in tile_of.
    """
    tiles_m = triton.cdiv(S_q, BLOCK_M)
    loads = [(0.0, program) for program in range(programs)]
    lists: list[list[int]] = [[] for _ in range(programs)]
    for tile in range(heads * tiles_m):
        first_head = tile // (group * tiles_m) * group
        row = (tile - first_head * tiles_m) // min(heads - first_head, group)
        end = min((tiles_m - row) * BLOCK_M, S_q) + S_k - S_q
        load, program = loads[0]
        lists[program].append(tile)
        heapq.heapreplace(loads, (load + max(triton.cdiv(end, BLOCK_N), 1) + TILE_COST, program))
    return lists


@lru_cache(maxsize=64)
def _table(sizes: Sizes, device: torch.device) -> Tensor:
    """tile_lists as int32 (turns, programs) on the device. A column belongs to a program: its count, then its tiles."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "attention: first causal call with these sizes inside a CUDA graph capture; "
            "call it once before, to copy a table of tiles to the GPU"
        )
    lists = tile_lists(*sizes)
    turns = 1 + max(len(tiles) for tiles in lists)  # one more, because programs read one turn ahead
    columns = [[len(tiles), *tiles] + [0] * (turns - len(tiles)) for tiles in lists]
    return torch.tensor(columns, dtype=torch.int32).t().contiguous().to(device)


def tile_table(*sizes: int, device: torch.device) -> Tensor:
    """The table of tile_lists(*sizes) for the kernel. It is cached for the last 64 sizes, and for those in CUDA graphs.

    Raises: RuntimeError in a CUDA graph capture, unless an earlier call has cached the table.
    """
    key = (sizes, device)
    table = captured.get(key)  # type: ignore[arg-type]
    if table is None:
        table = _table(*key)  # type: ignore[arg-type]
        if torch.cuda.is_current_stream_capturing():
            captured[key] = table  # type: ignore[index]
        else:
            table.record_stream(torch.cuda.current_stream())  # keeps its memory until the kernel has run
    return table


@gluon.jit
def tile_count(table_ptr, tiles):
    """Number of tiles that this program computes: those of its list, or every num_programs-th tile."""
    if table_ptr is None:
        return gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))
    else:
        return gl.load(table_ptr + gl.program_id(0))


@gluon.jit
def tile_number(table_ptr, turn):
    """Index of the tile that this program computes in turn number `turn`."""
    if table_ptr is None:
        return turn * gl.num_programs(0) + gl.program_id(0)
    else:
        return gl.load(table_ptr + (turn + 1) * gl.num_programs(0) + gl.program_id(0))


@gluon.jit
def tile_of(tile, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Batch entry, head, and first query of a tile; the blocks of keys that any of its queries sees, and that all see.

    HEAD_GROUP heads run together, so that their keys and values stay in the L2 cache. Within a group the last
    queries, which see most keys when causal, come first.
    """
    H, HEADS, HEAD_GROUP, S_q, S_k, _ = sizes
    tiles_m = gl.cdiv(S_q, BLOCK_M)
    first_head = tile // (HEAD_GROUP * tiles_m) * HEAD_GROUP
    group = min(HEADS - first_head, HEAD_GROUP)
    within = tile - first_head * tiles_m
    row = within // group
    head = first_head + within - row * group
    start_m = (tiles_m - 1 - row) * BLOCK_M
    if CAUSAL:
        end = min(start_m + BLOCK_M, S_q) + S_k - S_q
        blocks = max(gl.cdiv(end, BLOCK_N), 1)  # a tile that sees no key has one masked block
        unmasked = min(max(start_m + 1 + S_k - S_q, 0), S_k) // BLOCK_N
    else:
        blocks = gl.cdiv(S_k, BLOCK_N)
        unmasked = S_k // BLOCK_N
    return head // H, head % H, start_m, blocks, unmasked
