"""Reading a .cu: signatures, requirements and headers, and the rewriting as C++ for the CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cuda_ref.build import compiler
from cuda_ref.build import rewrite as _rewrite

HOST_SOURCES = sorted((Path(__file__).parents[1] / "host").glob("*.cu"))


def test_parameters_are_read_from_the_source() -> None:
    text = """
    // extern "C" int f(int wrong, cudaStream_t s, LaunchRecord* r)
    extern "C" int f(const float* __restrict__ a, void *b /* , comment */, int64_t n,
                     const int flag, float scale, double d, cudaStream_t stream, LaunchRecord* record) { }
    extern "C" int g(int x) { }
    """
    assert _rewrite.parameters(text, "f") == ["pointer", "pointer", "int64_t", "int", "float", "double"]
    with pytest.raises(LookupError, match="must end in"):
        _rewrite.parameters(text, "g")


def test_requirements_of_an_architecture() -> None:
    assert _rewrite.requirement("// text\n// requires: sm_90a\n") == "sm_90a"
    assert _rewrite.requirement("//   // requires: sm_90a\nint x;  // requires: sm_80\n") is None
    with pytest.raises(ValueError, match="got 'hopper'"):
        _rewrite.requirement("// requires: hopper\n")
    cases = [("sm_80", None), ("sm_80", "sm_80"), ("sm_90a", "sm_80"), ("sm_121", "sm_90"), ("sm_90a", "sm_90a")]
    assert all(compiler.satisfies(arch, required) for arch, required in cases)
    assert not any(compiler.satisfies(arch, "sm_90a") for arch in ("sm_80", "sm_90", "sm_100a"))
    assert not compiler.satisfies("sm_75", "sm_80")
    assert [compiler.arch_of(8, 0), compiler.arch_of(9, 0), compiler.arch_of(12, 1)] == [
        "sm_80",
        "sm_90a",
        "sm_121a",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1, 2>>>(x);", "launch(::cuda_host::address(k), [=](auto... a) { k(a...); }, 1, 2)(x);"),
        (
            "else a::k<T, (1 > 2)><<<g(1, 2), b, s[1], t>>>(x, y);",
            "else launch(::cuda_host::address(a::k<T, (1 > 2)>), [=](auto... a) { a::k<T, (1 > 2)>(a...); }, "
            "g(1, 2), b, s[1], t)(x, y);",
        ),
        ("k<<<1, f<int>>>>(x);", "launch(::cuda_host::address(k), [=](auto... a) { k(a...); }, 1, f<int>)(x);"),
        ("// k<<<1, 2>>>(x);\n'\"'; 1'000;", "// k<<<1, 2>>>(x);\n'\"'; 1'000;"),
        ('"k<<<1, 2>>>(x)" R"(k<<<1>>>)" R"d()" k<<<)d"', '"k<<<1, 2>>>(x)" R"(k<<<1>>>)" R"d()" k<<<)d"'),
        ("x << 3 <<y; a<b<c>>();", "x << 3 <<y; a<b<c>>();"),
    ],
)
def test_launches_are_rewritten(text: str, expected: str) -> None:
    assert (
        _rewrite.to_host(text).replace("::cuda_host::launch", "launch").replace("cuda_host_argument", "a") == expected
    )


def test_launches_are_named_and_loops_unrolled_where_kernels_are_counted() -> None:
    counted = _rewrite.to_host("k<T,\n 2><<<1, 2>>>(x);", counted=True)
    assert counted.endswith(', 1, 2).named("k<T, 2>")(x);')
    for pragma, expected in {
        "#pragma unroll": "#pragma GCC unroll 65534",
        "  # pragma unroll 8": "  # pragma GCC unroll 8",
        "#pragma unroll(4)  // four": "#pragma GCC unroll 4  // four",
    }.items():
        assert _rewrite.to_host(pragma, counted=True) == expected
        assert _rewrite.to_host(pragma) == pragma


def test_a_kernel_with_all_template_arguments_has_an_address() -> None:
    declared = "template <typename T, int N>\n__global__ void __launch_bounds__(256) k(T* x);\n"
    for kernel, known in [("k<float, 2>", True), ("k<float>", False), ("k", False), ("other", True)]:
        assert (f"address({kernel})" in _rewrite.to_host(f"{declared}{kernel}<<<1, 2>>>(x);")) == known
    assert "address(k<>)" in _rewrite.to_host("template <int N = 2> __global__ void k(int x); k<><<<1, 1>>>(x);")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__shared__ float tile[32][33], sums[N < 3 ? 1 : 2];", ["tile", "sums"]),
        ("static __shared__ alignas(16) Pack<T, 8> x;", ["x"]),
        ("volatile __shared__ unsigned long long a, b[2];", ["a", "b"]),
        ("__shared__ typename Block<T, 3>::Storage storage;", ["storage"]),
    ],
)
def test_shared_variables_are_found(text: str, names: list[str]) -> None:
    rewritten = _rewrite.to_host(text)
    assert "__shared__" not in rewritten
    assert rewritten.count("static") == 1 + len(names)
    for name in names:
        assert f'enter_shared(cuda_host_block, {name}, "{name}");' in rewritten


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("__shared__ float tile[32][33], sums[N < 3 ? 1 : 2];", ["float tile[32][33];", "float sums[N < 3 ? 1 : 2];"]),
        ("static __shared__ alignas(16) Pack<T, 8> x;", ["alignas(16) Pack<T, 8> x;"]),
        ("__shared__ Pair<int, float> *a, b[2];", ["Pair<int, float> *a;", "Pair<int, float> b[2];"]),
    ],
)
def test_shared_variables_with_gaps(text: str, members: list[str]) -> None:
    rewritten = " ".join(_rewrite.to_host(text, gaps=True).split())
    assert "__shared__" not in rewritten
    for i, member in enumerate(members):
        assert f"alignas(128) {member} char cuda_host_gap{i}[128];" in rewritten


def test_dynamic_shared_memory_becomes_a_pointer_and_lines_do_not_move() -> None:
    text = "f();\nextern __shared__ __align__(16)\n    unsigned char raw[];\ng();"
    rewritten = _rewrite.to_host(text)
    assert "unsigned char* const raw = ::cuda_host::dynamic_shared<unsigned char>()" in rewritten
    assert rewritten.splitlines().index("g();") == text.splitlines().index("g();")


@pytest.mark.parametrize("path", HOST_SOURCES, ids=lambda path: path.stem)
def test_rewriting_does_not_move_lines(path: Path) -> None:
    text = path.read_text()
    before, after = text.splitlines(), _rewrite.to_host(text).splitlines()
    assert len(before) == len(after)
    assert all(new == old for old, new in zip(before, after, strict=True) if old.startswith(('extern "C"', "}")))


def test_headers_are_expanded_in_place(tmp_path: Path) -> None:
    (tmp_path / "once.cuh").write_text("#pragma once\nint once;\n")
    (tmp_path / "again.cuh").write_text('#include "once.cuh"\nint again;\n')
    main = tmp_path / "main.cu"
    main.write_text(
        '#include "once.cuh"\n#include "again.cuh"\n#include "elsewhere.h"\n// #include "once.cuh"\nint main;\n'
    )
    text = _rewrite.expand(main, [])
    assert text.count("int once;") == 2  # with an include guard
    assert '#include "elsewhere.h"' in text
    assert "pragma once" not in text
    assert f'#line 4 "{main}"' not in text  # lines are counted from 1 in every file: the comment is the fourth
    assert f'#line 2 "{main}"' in text
    assert f'#line 3 "{main}"' in text
    compiled = subprocess.run(
        [compiler.cxx() or "c++", "-x", "c++", "-fsyntax-only", "-"],
        input=text.replace('#include "elsewhere.h"', "") + "\nerror",
        capture_output=True,
        text=True,
    ).stderr
    assert f"{main}:7:" in compiled
    assert "redefinition" not in compiled
