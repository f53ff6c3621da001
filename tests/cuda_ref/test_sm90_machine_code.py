"""The machine code of the kernels for Hopper."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
from thinning import THOROUGH, thorough_unless

from cuda_ref import build
from cuda_ref.build import cache as _cache
from cuda_ref.build import compiler, libraries

needs_nvcc = pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))
FILES = [each for each in sorted(build.HERE.glob("*/*.cu")) if build.requires(each) == "sm_90a"]
SOURCES = [str(each.relative_to(build.HERE).with_suffix("")) for each in FILES]
IN_MAKE_TEST = {"grouped_matmul_grad/wgmma", "layer_norm/cluster"}
"""One kernel that multiplies, and one of a cluster. nvcc takes up to ten seconds for one."""
WITHOUT_PRODUCTS = r"split_rows|prepare|finish|add_parts|add_rows|count_targets|add_logits|to_gradients|transpose"
"""Kernels before and after those that multiply."""


SPILLS = {"int4_matmul/few_wgmma": 8}
"""Largest spills of a kernel, in bytes, with its stores and loads; none elsewhere."""


def sources(*names: str) -> list[object]:
    return [pytest.param(name, marks=thorough_unless(name in IN_MAKE_TEST)) for name in names]


def device_code(name: str) -> Path:
    """The folder in the cache of builds with kernel.cubin of a .cu for sm_90a, and ptxas.txt."""
    text = libraries.prepared(name, "sm_90a")
    key = libraries.key_of(name, "sm_90a", ["cubin", text, *compiler.NVCC_FLAGS])
    return compiler.device_code(key, text, "sm_90a")


@lru_cache(maxsize=2)
def machine_code(name: str) -> dict[str, str]:
    """The SASS instructions of each kernel in a .cu, one in each line. The listing is kept in the cache of builds."""
    folder = device_code(name)
    if compiler.cuobjdump() is None:
        pytest.skip("no cuobjdump, in the CUDA toolkit or in Triton's package")

    def make(listing: Path) -> None:
        (listing / "kernel.sass").write_text(compiler.disassembled(folder / "kernel.cubin"))

    listing = (_cache.entry(f"{folder.name}-sass", make) / "kernel.sass").read_text()
    functions = re.split(r"^\s*Function : ", listing, flags=re.MULTILINE)[1:]
    return {f.split("\n")[0].strip(): "\n".join(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", f)) for f in functions}


@needs_nvcc
@pytest.mark.parametrize("name", sources(*SOURCES))
def test_no_spills_and_no_serialized_products(name: str) -> None:
    report = (device_code(name) / "ptxas.txt").read_text()
    found = compiler.parse_resources(report, "sm_90a")
    assert found
    assert [each for each in found if max(each.spill_bytes, each.stack_bytes) > SPILLS.get(name, 0)] == []
    assert "serialized" not in report, "wgmma instructions are serialized: see the warning of ptxas"
    assert "setmaxnreg ignored" not in report


@needs_nvcc
@pytest.mark.parametrize("name", sources(*(each for each in SOURCES if not each.endswith("/cluster"))))
def test_products_are_wgmma_and_copies_tma(name: str) -> None:
    found = machine_code(name).items()
    kernels = {kernel: code for kernel, code in found if not re.search(WITHOUT_PRODUCTS, kernel)}
    assert kernels
    for kernel, code in kernels.items():
        assert ("QGMMA.64x" if re.search("Float8|block_scaled", kernel) else "HGMMA.64x") in code, kernel
        assert re.search(r"UTMALDG\.[24]D|UBLKCP", code), kernel
        forbidden = [r"\bHMMA"]
        if not re.match("(ring_)?attention|(grouped_)?block_scaled|linear|lstm|int4_matmul/few", name):
            forbidden += [r"\bFFMA"]  # functions and scales take them
        if name not in SPILLS:
            forbidden += [r"\bLDL|\bSTL"]
        assert not re.search("|".join(forbidden), code), kernel


@needs_nvcc
@pytest.mark.parametrize("name", sources(*(each for each in SOURCES if each.endswith("/cluster"))))
def test_rows_are_accessed_by_16_bytes_with_one_barrier_of_the_cluster(name: str) -> None:
    exchanges = 2 if name.startswith("cross_entropy") else 1  # the second one with smoothing alone
    for kernel, code in machine_code(name).items():
        if "count_targets" not in kernel:
            assert {"LDG.E.128", "STG.E.128"} <= set(re.findall(r"[LS][DT]G\.E\.128", code)), kernel
            assert code.count("UCGABAR_ARV") == 2 * exchanges, kernel  # one before numbers are read, and one after


@needs_nvcc
@THOROUGH
def test_wgmma_has_products_for_each_layout_and_type() -> None:
    kernels = machine_code("matmul/wgmma")
    everything = "\n".join(kernels.values())
    for kind in ("16.F32", "16.F32.BF16"):
        for shape in ("64x128x", "64x192x", "64x256x"):
            found = re.findall(rf"HGMMA\.{shape}{kind} R\d+, gdesc\[UR\d+\](\S*),", everything)
            assert set(found) == {"", ".tnspA", ".tnspB", ".tnspA.tnspB"}, (shape, kind)
    tf32, float8 = ("\n".join(machine_code(name).values()) for name in ("matmul/_wgmma32", "matmul/_wgmma8"))
    for columns in (64, 128, 192, 256):
        for factors in (r"R\d+, R\d+, gdesc", r"R\d+, gdesc"):
            assert re.search(rf"HGMMA\.64x{columns}x8\.F32\.TF32 {factors}", tf32)
        assert f"QGMMA.64x{columns}x32.F32.E4M3.E4M3" in float8
    assert "UTMALDG.2D.MULTICAST" in everything
    assert "UTMASTG.2D" in everything


@needs_nvcc
@pytest.mark.parametrize("name", sources("matmul/_fitted_bfloat16", "matmul/_fitted_float16"))
def test_fitted_tiles_have_products_of_every_number_of_rows(name: str) -> None:
    kind = "F32.BF16" if name.endswith("bfloat16") else "F32"
    kernels = {kernel: code for kernel, code in machine_code(name).items() if "add_parts" not in kernel}
    assert len(kernels) == 4 * 3  # layouts, numbers of columns
    layouts = set()
    for kernel, code in kernels.items():
        found = re.findall(rf"HGMMA\.64x(\d+)x16\.{kind} (R\d+), gdesc\[UR\d+\](\S*),", code)
        sizes = [int(rows) for rows, _, _ in found]
        assert sizes == [rows for rows in range(16, max(sizes) + 1, 16) for _ in range(4)], kernel
        assert max(sizes) in (192, 256)
        assert len({(register, layout) for _, register, layout in found}) == 1, "sums move between registers"
        layouts.add(found[0][2])
    assert layouts == {"", ".tnspA", ".tnspB", ".tnspA.tnspB"}


@needs_nvcc
@pytest.mark.parametrize(
    "name", sources("matmul/wgmma", "matmul/_wgmma16", "linear_sigmoid/wgmma", "matmul/_fitted_bfloat16")
)
def test_the_loop_of_products_has_no_quotients(name: str) -> None:
    """The compiler would compute the number of steps again in each one, between a product and the wait for it."""
    for kernel, code in machine_code(name).items():
        lines = code.split("\n")
        branches = [
            (int(found[1], 16) // 16, i) for i, x in enumerate(lines) if (found := re.search(r"BRA 0x(\w+)", x))
        ]
        loops = [lines[to:i] for to, i in branches if to < i and any("GMMA.64x" in each for each in lines[to:i])]
        assert loops or re.search(WITHOUT_PRODUCTS, kernel), kernel
        for loop in sorted(loops, key=len)[:1]:
            assert [each for each in loop if re.search(r"IMAD\.HI|UIMAD\.WIDE|MUFU\.RCP", each)] == [], kernel


@needs_nvcc
@pytest.mark.parametrize("name", sources("matmul/tma_wgmma", "matmul/warp_specialized"))
def test_the_rungs_have_products_for_each_layout(name: str) -> None:
    kernels = machine_code(name)
    assert len(kernels) == 8
    everything = "\n".join(kernels.values())
    for kind in ("F32", "F32.BF16"):
        found = re.findall(rf"HGMMA\.64x256x16\.{kind} R\d+, gdesc\[UR\d+\](\S*),", everything)
        assert set(found) == {"", ".tnspA", ".tnspB", ".tnspA.tnspB"}, kind
    assert ("USETMAXREG" in everything) == (name == "matmul/warp_specialized")


@needs_nvcc
@pytest.mark.parametrize("name", ["cumsum/lookback", pytest.param("cumsum/registers", marks=THOROUGH)])
def test_rows_of_prefix_sums_are_stored_by_16_bytes(name: str) -> None:
    for kernel, code in machine_code(name).items():
        assert set(re.findall(r"\bSTG\.E(?:\.U16|\.64|\.128)?", code)) == {"STG.E.128"}, kernel
