"""Reads and rewrites the text of a .cu file: its requirement and signatures, its includes, and its form as C++.

For the CPU, three constructs of CUDA that are not C++ are rewritten; the headers in host/ provide the rest:
    kernel<<<grid, block, bytes, stream>>>(a, b)    a launch
    __shared__ float tile[32][33], sums[32];        static shared memory, filled with NaN for each block
    extern __shared__ float buffer[];               dynamic shared memory, whose size is an argument of the launch
Line numbers do not change, so that compiler messages refer to lines of the .cu file.
"""

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_TOKEN = re.compile(
    r'R"(?P<d>[^()\\\s]*)\(.*?\)(?P=d)"'  # raw string
    r"|//(?:\\\n|[^\n])*|/\*.*?\*/"  # comment
    r'|"(?:\\.|[^"\\\n])*"'  # string
    r"|\b\d[\w.']*"  # number, with digit separators
    r"|'(?:\\.|[^'\\\n])*'",  # character
    re.DOTALL,
)
GAP = 128
"""The constant of the same name in host/checked.h."""
TEXTS = 8
"""Texts whose last forms are kept: each launcher of a .cu asks for those of the whole file."""
_OPEN, _CLOSE = "([{", ")]}"


@functools.lru_cache(TEXTS)
def blank(text: str, strings: bool = True) -> str:
    """The text with comments and, unless `strings` is false, strings replaced by spaces. Positions do not change."""

    def replace(match: re.Match[str]) -> str:
        token = match[0]
        if token[0].isdigit() or (token[0] != "/" and not strings):
            return token
        return "\n".join(" " * len(line) for line in token.split("\n"))

    return _TOKEN.sub(replace, text)


def requirement(text: str) -> str | None:
    """The architecture of the line `// requires: sm_90a`, or None. Raises ValueError if it names no architecture."""
    match = re.search(r"^// requires: (\S+)\s*$", text, re.MULTILINE)
    if match and not re.fullmatch(r"sm_\d+a?", match[1]):
        raise ValueError(f"requires: an architecture such as sm_80 or sm_90a; got {match[1]!r}")
    return match[1] if match else None


def parameters(text: str, function: str) -> list[str]:
    """Types of the parameters of `extern "C" int function(..., cudaStream_t stream, LaunchRecord* record)`.

    Returns:
        one of "pointer", "int64_t", "int", "float" or "double" for each parameter but the last two.

    Raises:
        LookupError: if there is no such function, or it has other last parameters.
    """
    words = _declarations(text, function)
    if len(words) < 2 or not re.match(r"cudaStream_t\b", words[-2]) or not re.match(r"LaunchRecord\s*\*", words[-1]):
        raise LookupError(f"{function} must end in (..., cudaStream_t stream, LaunchRecord* record)")
    return ["pointer" if "*" in each else " ".join(each.split()[:-1]) for each in words[:-2]]


def parameter_names(text: str, function: str) -> list[str]:
    """Names of the parameters of `function` but the last two. Raises `LookupError` as `parameters` does."""
    return [re.findall(r"\w+", each)[-1] for each in _declarations(text, function)[:-2]]


def _declarations(text: str, function: str) -> list[str]:
    """The parameters of a launcher, without `const` and `__restrict__`."""
    inside = declaration(text, function).partition("(")[2].removesuffix(")")
    return [re.sub(r"\b(?:const|__restrict__)\b", " ", each).strip() for each in inside.split(",")]


def declaration(text: str, function: str) -> str:
    """`extern "C" int function(...)` as it stands in the text, on one line. Raises `LookupError` if there is none."""
    code = blank(text, strings=False)
    match = re.search(rf'extern\s+"C"\s+(?:int|cudaError_t)\s+{re.escape(function)}\s*\([^()]*\)', code)
    if match is None:
        raise LookupError(f'no extern "C" int {function}(...)')
    return " ".join(match[0].split()).replace("( ", "(")


def launchers(text: str) -> dict[str, int]:
    """All `extern "C" int function(...)` of a text, with their line numbers."""
    code = blank(text, strings=False)
    found = re.finditer(r'extern\s+"C"\s+(?:int|cudaError_t)\s+(\w+)\s*\(', code)
    return {match[1]: code.count("\n", 0, match.start()) + 1 for match in found}


def expand(path: Path, folders: list[Path], _within: tuple[Path, ...] = ()) -> str:
    """The text of a file, with the text of each `#include "..."` found beside it or in `folders` in place of it."""
    text = path.read_text()
    name = str(path).replace("\\", "\\\\").replace('"', '\\"')
    code = blank(text, strings=False)
    parts, done = [f'#line 1 "{name}"\n'], 0
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*\n?', code, re.MULTILINE):
        found = next((f / match[1] for f in (path.parent, *folders) if (f / match[1]).is_file()), None)
        if found is None or found in _within:
            continue
        line = text.count("\n", 0, match.end()) + 1
        parts += [text[done : match.start()], expand(found, folders, (*_within, path)), f'\n#line {line} "{name}"\n']
        done = match.end()
    parts.append(text[done:])
    joined = "".join(parts)
    once = re.search(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", code, re.MULTILINE)
    if once:  # has no effect in the middle of a file
        guard = "EXPANDED_" + hashlib.sha256(text.encode()).hexdigest()[:16]
        joined = re.sub(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", "", joined, count=1, flags=re.MULTILINE)
        joined = f"#ifndef {guard}\n#define {guard}\n{joined}\n#endif\n"
    return joined


@functools.lru_cache(TEXTS)
def to_host(text: str, gaps: bool = False, counted: bool = False) -> str:
    """The text as C++ for the headers in host/. It must include cuda_runtime.h, at least through common/common.cuh.

    gaps: leave unused memory before and after each variable of constant, global and static shared memory, for
        host/checked.h.
    counted: name the launches and unroll the loops as nvcc does, for host/counted.h.
    """
    text = _launches(_shared(_globals(text) if gaps else text, gaps), counted)
    return _unrolled(text) if counted else text


def _unrolled(text: str) -> str:
    """The text with `#pragma unroll` in the form that GCC knows."""
    return re.sub(
        r"^([ \t]*#[ \t]*pragma)[ \t]+unroll\b[ \t]*(?:\([ \t]*(\d+)[ \t]*\)|(\d+))?",
        lambda found: f"{found[1]} GCC unroll {found[2] or found[3] or 65534}",
        text,
        flags=re.MULTILINE,
    )


def _shared(text: str, gaps: bool) -> str:
    edits: list[tuple[int, int, str]] = []
    code = blank(text)
    for match in re.finditer(r"\b(?:(extern|static)\s+)?__shared__\b", code):
        if (end := code.find(";", match.end())) < 0:
            raise ValueError("__shared__ without ;")
        names = list(_declared(code[match.end() : end]))
        if match[1] == "extern":
            first, last = names[0]
            kind = re.sub(r"\b(?:__align__|alignas)\s*\([^()]*\)", " ", code[match.end() : match.end() + first]).strip()
            name = code[match.end() + first : match.end() + last]
            lines = "\n" * text.count("\n", match.start(), end)
            edits.append((match.start(), end, f"{kind}* const {name} = ::cuda_host::dynamic_shared<{kind}>(){lines}"))
            continue
        declared = [code[match.end() + first : match.end() + last] for first, last in names]
        if gaps:
            edits.append((match.start(), end + 1, _with_gaps(code[match.end() : end], names, declared, match.start())))
        else:
            edits.append((match.start(), match.end(), "static"))
        enter = [
            " { static unsigned long long cuda_host_block;"
            f' ::cuda_host::enter_shared(cuda_host_block, {name}, "{name}"); }}'
            for name in declared
        ]
        edits.append((end + 1, end + 1, "".join(enter)))
    return _edited(text, edits)


def _globals(text: str) -> str:
    """The text with gaps around variables of __constant__ and __device__ memory, which are noted for checks."""
    edits: list[tuple[int, int, str]] = []
    code = blank(text)
    for match in re.finditer(r"(?:\bstatic\s+)?(?:\b(?:__constant__|__device__)\s+)+(?:static\s+)?", code):
        end = re.search(
            r";|\(", re.sub(r"(?:alignas|__align__)\s*\([^()]*\)", lambda m: "_" * len(m[0]), code[match.end() :])
        )
        declaration = code[match.end() : match.end() + end.start()] if end else ""
        before = code[: match.start()].rstrip()
        if end is None or end[0] == "(" or before.endswith(("extern", ">", "]")) or _is_directive(code, match.start()):
            continue
        names = list(_declared(declaration))
        if not names or re.search(r"\b(?:struct|class|union|enum|constexpr|using)\b|\[\s*\]", declaration):
            continue
        kind = str("__constant__" in match[0]).lower()
        declared = [declaration[first:last] for first, last in names]
        notes = "".join(
            f' static const ::cuda_host::Noted cuda_host_noted{match.start()}_{name}({name}, "{name}", {kind});'
            for name in declared
        )
        shown = text[match.end() : match.end() + end.start()]
        edits.append(
            (match.start(), match.end() + end.end(), _with_gaps(shown, names, declared, match.start()) + notes)
        )
    return _edited(text, edits)


def _is_directive(code: str, position: int) -> bool:
    return code[code.rfind("\n", 0, position) + 1 :].lstrip().startswith("#")


def _with_gaps(declaration: str, at: Sequence[tuple[int, int]], names: Sequence[str], number: int) -> str:
    """Declares the same variables as members of a static structure, with unused bytes around each."""
    first, *rest = _split(declaration)
    base = declaration[: at[0][0]].rstrip("*& \n").strip()
    gap = f"char cuda_host_gap{{}}[{GAP}];"
    members = [
        f" alignas({GAP}) {base} {each.removeprefix(base).rstrip(',')}; {gap.format(i)}"
        for i, each in enumerate([first, *rest])
    ]
    variable = f"cuda_host_shared{number}"
    references = "".join(f" auto& {name} = {variable}.{name};" for name in names)
    return f"static struct {{ {gap.format('')}{''.join(members)} }} {variable};{references}"


def _declared(declaration: str) -> Iterator[tuple[int, int]]:
    """Positions of the names in `float tile[32][33], sums[32]`: the last word before [, = or a comma."""
    stack, name, fixed = "", None, False
    for match in re.finditer(r"\w+|[^\w\s]", declaration + ","):
        token = match[0]
        if token in "([{" or (token == "<" and stack[-1:] in ("", "<")):
            fixed = fixed or (not stack and token in "[{")
            stack += token
        elif token in ")]}" or (token == ">" and stack[-1:] == "<"):
            stack = stack[:-1]
        elif not stack and token == "=":
            fixed = True
        elif not stack and token == ",":
            if name:
                yield name
            name, fixed = None, False
        elif not stack and not fixed and re.match(r"[A-Za-z_]", token):
            name = match.span()


def _launches(text: str, named: bool) -> str:
    edits: list[tuple[int, int, str]] = []
    code, uncommented = blank(text), blank(text, strings=False)
    for match in re.finditer("<<<", code):
        start = _kernel_start(code, match.start())
        end = _config_end(code, match.end())
        kernel, config = uncommented[start : match.start()], uncommented[match.end() : end - 3]
        address = _address(code, " ".join(kernel.split()))
        body = f"[=](auto... cuda_host_argument) {{ {kernel}(cuda_host_argument...); }}"
        name = f'.named("{" ".join(kernel.split())}")' if named else ""
        edits.append((start, end, f"::cuda_host::launch({address}, {body}, {config}){name}"))
    return _edited(text, edits)


def _kernel_start(code: str, end: int) -> int:
    """Start of the expression before <<<: a name, with qualifiers and template arguments if it has any."""
    i = end
    while code[i - 1].isspace():
        i -= 1
    if code[i - 1] in ">)":
        angle = code[i - 1] == ">"
        depth = inner = 0
        while True:
            i -= 1
            inner += (code[i] in _CLOSE) - (code[i] in _OPEN)
            if angle and inner == 0:
                depth += (code[i] == ">") - (code[i] == "<")
            if depth == 0 and inner == 0:
                break
    begin = max(code.rfind(each, 0, i) for each in (";", "{", "}", ")")) + 1  # a search of the whole text takes long
    return begin + re.search(r"(?:::\s*)?(?:\w+\s*::\s*)*\w*\s*\Z", code[begin:i]).start()  # type: ignore[union-attr]


def _config_end(code: str, start: int) -> int:
    """End of the >>> that closes the configuration of a launch."""
    depth = 0
    for i in range(start, len(code)):
        depth += (code[i] in _OPEN) - (code[i] in _CLOSE)
        if depth == 0 and code.startswith(">>>", i) and not code.startswith(">>>>", i):
            return i + 3
    raise ValueError("<<< without >>>")


def _address(code: str, kernel: str) -> str:
    """An expression for the address of a kernel, for cudaFuncSetAttribute; null if template arguments are deduced."""
    name, _, arguments = kernel.partition("<")
    name = re.escape(name.split("::")[-1].strip())
    between = r"[^;{}()]*(?:\([^()]*\)[^;{}()]*)?"  # __global__ void __launch_bounds__(256)
    template = re.search(rf"template\s*<([^;{{}}]*)>{between}\b{name}\s*\(", code) if name else None
    if template:
        parameters = [each for each in _split(template[1]) if "=" not in each and "..." not in each]
        if len(_split(arguments)) < max(len(parameters), 1):
            return "nullptr"
    return f"::cuda_host::address({kernel})"


def _split(text: str) -> list[str]:
    """The parts of a list, separated by commas outside of brackets."""
    parts, depth = [""], 0
    for c in text.strip():
        depth += (c in "([{<") - (c in ")]}>")
        parts[-1] += c
        if c == "," and depth == 0:
            parts.append("")
    return [each for each in parts if each]


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text
