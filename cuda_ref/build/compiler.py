"""The compilers: their paths, versions and flags, and the resources of a kernel as reported by ptxas."""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .cache import BuildError, entry

NVCC_FLAGS = [
    "-O3",
    "-std=c++17",
    "-lineinfo",
    "-Xptxas=-v",
    # load_inline disables these operators, which the .cu files use.
    *(
        f"-U__CUDA_NO_{name}__"
        for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
    ),
]
HOST_FLAGS = [
    "-Og",  # -O1 builds up to twice as long, and its kernels are a quarter faster
    "-std=c++17",
    "-w",
    "-ffp-contract=off",  # a*b+c rounds twice; fmaf rounds once
    "-fno-math-errno",
    "-fno-gnu-unique",  # each library has its own variables of templates
    "-fno-semantic-interposition",  # allows the inlining of a kernel into its launch
    "-fsanitize=alignment",  # a misaligned access is an error, as on a GPU; handler in host/launch.h
]
CHECKED_FLAGS = [  # a function of host/checked.h is called before each access
    *HOST_FLAGS,
    "-O1",
    "-g1",  # for the line of an access
    "-fno-tree-vectorize",  # each thread makes its own accesses
    "-fsanitize=thread",
    *("--param=tsan-instrument-func-entry-exit=0", "--param=tsan-distinguish-volatile=1"),
    "-fsanitize=bounds,return",
    "-DCUDA_HOST_CHECKED",
]
COUNTED_FLAGS = [  # a function of host/counted.h is called in each basic block as well
    *CHECKED_FLAGS,
    "-O2",  # unrolls and hoists as nvcc does
    *("-fno-tree-sra", "-fno-ipa-sra"),  # a vector is loaded and stored as a whole
    *("-fno-tree-slp-vectorize", "-fno-tree-loop-distribute-patterns"),  # no access is hidden in a call of memset
    *("-fsanitize-coverage=trace-pc", "-fno-sanitize=bounds"),
    "-DCUDA_HOST_COUNTED",
]
HOST, CHECKED, COUNTED = "host", "checked", "counted"
HOST_TARGETS = (HOST, CHECKED, COUNTED)
"""Targets of builds for the CPU. The other targets are architectures."""
LINK_FLAGS = [
    "-Wl,--as-needed",  # load_inline adds libraries of torch, and none is used
    "-Wl,-Bsymbolic",  # calls stay within the library, whatever else the process has loaded
]


def on_host(target: str) -> bool:
    return target in HOST_TARGETS


def host_flags(target: str) -> list[str]:
    return {HOST: HOST_FLAGS, CHECKED: CHECKED_FLAGS, COUNTED: COUNTED_FLAGS}[target]


@functools.lru_cache
def can_check() -> bool:
    """True if the C++ compiler is GCC, which takes CHECKED_FLAGS and COUNTED_FLAGS."""
    path = cxx()
    return path is not None and "Free Software Foundation" in "".join(_version(each, 0) for each in compilers(HOST))


def link_flags(text: str, target: str) -> list[str]:
    """The flags of the linker for the text of a .cu; cuBLAS is linked for a GPU if the text includes its header."""
    uses_cublas = not on_host(target) and re.search(r"^[ \t]*#[ \t]*include[ \t]*<cublas", text, re.MULTILINE)
    return [*LINK_FLAGS, "-lcublas", "-lcublasLt"] if uses_cublas else list(LINK_FLAGS)


def nvcc() -> str | None:
    """Path of nvcc, found as torch finds it: in $CUDA_HOME or $CUDA_PATH, else on PATH, else in /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which("nvcc", path=f"{home}/bin")
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def cxx() -> str | None:
    """Path of the C++ compiler, or of its launcher (`CXX="ccache g++"`), found as torch finds it: $CXX, else c++."""
    return shutil.which(cxx_command()[0])


def cxx_command() -> list[str]:
    """The words of $CXX: an optional launcher such as ccache, the compiler, options; otherwise c++."""
    given = os.environ.get("CXX", "c++")
    try:
        return shlex.split(given) or ["c++"]
    except ValueError:  # an open quotation mark
        return [given]


def search_path() -> str:
    """PATH with the scripts folder of this Python, where pip installs ninja."""
    return os.pathsep.join(filter(None, [os.environ.get("PATH"), sysconfig.get_path("scripts")]))


def missing(device_type: str) -> str | None:
    """Names the tools that a build of a .cu lacks on this machine, and how to install them. Builds nothing.

    Args:
        device_type: "cuda" or "cpu".

    Returns:
        a sentence, or None if nothing is missing.

    Raises:
        ValueError: for another device type.
    """
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"missing: device_type must be 'cuda' or 'cpu'; got {device_type!r}")
    if device_type == "cuda" and nvcc() is None:
        home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
        where = f"in {home}/bin, which CUDA_HOME or CUDA_PATH names" if home else "on PATH or in /usr/local/cuda/bin"
        return f"no nvcc {where}: install the CUDA toolkit that torch was built with, or set CUDA_HOME"
    if cxx() is None:
        return f"no C++ compiler {os.environ.get('CXX', 'c++')!r} on PATH: install g++ (apt install g++), or set CXX"
    if shutil.which("ninja", path=search_path()) is None:
        return "no ninja on PATH: pip install ninja"
    return None


def identity(executable: str) -> str:
    """Path, size, time and --version of a compiler. It changes with an upgrade, also behind a wrapper script."""
    path = Path(executable).resolve()
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {_version(executable, status.st_mtime_ns)}"


@functools.lru_cache
def _version(executable: str, mtime_ns: int) -> str:
    return subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout


def compilers(target: str) -> list[str]:
    """The programs of a build for a target: those among the words of $CXX, and nvcc for an architecture."""
    programs = [shutil.which(word) for word in cxx_command()]
    return [each for each in (programs if on_host(target) else [*programs, nvcc()]) if each]


def compiler_for(target: str) -> str:
    return "the C++ compiler" if on_host(target) else "nvcc"


def arch_of(major: int, minor: int) -> str:
    """The architecture to build for, from a compute capability: sm_90a for (9, 0); without `a` before Hopper."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def arch_flag(arch: str) -> str:
    return f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"


def satisfies(arch: str, required: str | None) -> bool:
    """True if code with a line `// requires: <required>` compiles for `arch`: sm_80 is a minimum, sm_90a is exact."""
    if required is None or arch == required:
        return True
    return not required.endswith("a") and int(arch[3:].rstrip("a")) >= int(required[3:])


@functools.lru_cache
def newest_arch() -> str:
    """The newest architecture that nvcc supports, such as sm_121."""
    done = subprocess.run([_nvcc_or_raise(), "--list-gpu-arch"], capture_output=True, text=True, check=True)
    known: list[str] = re.findall(r"compute_(\d+)$", done.stdout, re.MULTILINE)
    return "sm_" + max(known, key=int)


def _nvcc_or_raise() -> str:
    if (found := nvcc()) is None:
        raise BuildError(missing("cuda"))
    return found


def device_code(key: str, text: str, arch: str, kind: str = "cubin") -> Path:
    """A cached folder with kernel.cubin or kernel.ptx for `arch`, and ptxas.txt, the report of `ptxas -v`."""

    def make(folder: Path) -> None:
        (folder / "kernel.cu").write_text(text)
        command = [_nvcc_or_raise(), *NVCC_FLAGS, arch_flag(arch), f"-{kind}", "kernel.cu", "-o", f"kernel.{kind}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"nvcc failed for {arch}:\n{useful(done.stdout + done.stderr)}")
        (folder / "ptxas.txt").write_text(done.stdout + done.stderr)

    return entry(key, make)


def cuobjdump() -> str | None:
    """Path of cuobjdump: on PATH, beside nvcc, or in the Triton package, which contains a copy."""
    found = shutil.which("cuobjdump") or (shutil.which(str(Path(nvcc() or "nvcc").resolve().parent / "cuobjdump")))
    triton = importlib.util.find_spec("triton")
    if found is None and triton is not None and triton.origin is not None:
        found = shutil.which(Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump")
    return found


def disassembled(path: Path) -> str:
    """The SASS of all kernels in a library or a cubin."""
    if (tool := cuobjdump()) is None:
        raise BuildError("no cuobjdump on PATH, beside nvcc or in Triton's package: apt install cuda-cuobjdump-13-0")
    done = subprocess.run([tool, "-sass", str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{tool} failed for {path}: {useful(done.stdout + done.stderr)}")
    return done.stdout


@dataclass(frozen=True)
class Resources:
    """Registers per thread, and bytes of stack and spills, of one compiled function."""

    function: str
    arch: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


_PTXAS = re.compile(
    r"Function properties for (?P<function>\S+)\s+"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r"(?:\s*ptxas info\s*: Used (?P<registers>\d+) registers)?"
)


def parse_resources(report: str, arch: str) -> list[Resources]:
    """The functions in a report of `ptxas -v`; names are demangled if c++filt is installed."""
    found = list(_PTXAS.finditer(report))
    names = [match["function"] for match in found]
    if names and shutil.which("c++filt"):
        names = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        Resources(name, arch, *(int(match[field] or 0) for field in ("registers", "stack", "stores", "loads")))
        for name, match in zip(names, found, strict=True)
    ]


_NOISE = re.compile(
    r"^(?:Error building extension|\[\d+/\d+\]|FAILED:|ninja: |ptxas info|In file included from|\s+from |\s*$)"
    r"|^\s+\d+ bytes stack frame"
)


def useful(output: str, limit: int = 40) -> str:
    """The compiler's messages in a build log, at most `limit` lines, without commands, progress and ptxas info."""
    lines = output.splitlines()
    kept = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if not _NOISE.match(line) and not before.startswith("FAILED:")  # ninja prints the command after FAILED
    ]
    if len(kept) > limit:
        kept = [*kept[:limit], f"... and {len(kept) - limit} more lines"]
    return "\n".join(kept)
