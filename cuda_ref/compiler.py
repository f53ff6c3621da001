"""The compilers: where they are, who they are, which flags they get, and what nvcc says about a kernel's resources."""

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ._cache import BuildError, entry

NVCC_FLAGS = [
    "-O3",
    "-std=c++17",
    "-lineinfo",
    "-Xptxas=-v",
    # torch's load_inline switches these off; the .cu files are ordinary CUDA, where they exist.
    *(
        f"-U__CUDA_NO_{name}__"
        for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
    ),
]
HOST_FLAGS = [
    "-O2",
    "-std=c++17",
    "-w",
    "-ffp-contract=off",  # a*b+c rounds twice; fmaf rounds once
    "-fno-math-errno",
    "-fno-gnu-unique",  # variables of templates stay in their library
    "-fno-semantic-interposition",  # lets a kernel be inlined where it is launched
    "-fsanitize=alignment",  # a misaligned access faults, as on a GPU; its handler is in host/launch.h
]
LINK_FLAGS = [
    "-Wl,--as-needed",  # torch puts its libraries on the command line; none is used
    "-Wl,-Bsymbolic",  # a library means its own functions, whatever else the process has loaded
]


def nvcc() -> str | None:
    """The nvcc that torch would take: of $CUDA_HOME or $CUDA_PATH, else on PATH, else of /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which("nvcc", path=f"{home}/bin")
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def cxx() -> str | None:
    """The C++ compiler that torch would take: $CXX, else c++."""
    return shutil.which(os.environ.get("CXX", "c++"))


def search_path() -> str:
    """PATH, and this Python's scripts, where pip puts ninja: a Python called by its path does not have them in PATH."""
    return os.pathsep.join(filter(None, [os.environ.get("PATH"), sysconfig.get_path("scripts")]))


def missing(device_type: str) -> str | None:
    """What keeps a .cu from being built for "cuda" or "cpu", and how to get it, or None. Builds nothing."""
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
    """Path, file and --version of a compiler: an upgrade changes it, in place or behind a wrapper script."""
    path = Path(executable).resolve()
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {_version(executable, status.st_mtime_ns)}"


@functools.lru_cache
def _version(executable: str, mtime_ns: int) -> str:
    return subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout


def compilers(target: str) -> list[str]:
    """All that take part in a build for "host" or an architecture."""
    return [each for each in ([cxx()] if target == "host" else [cxx(), nvcc()]) if each]


def compiler_for(target: str) -> str:
    return "the C++ compiler" if target == "host" else "nvcc"


def arch_of(major: int, minor: int) -> str:
    """The one architecture to build for on a device: sm_90a for (9, 0); before Hopper there is no `a`."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def arch_flag(arch: str) -> str:
    return f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"


def satisfies(arch: str, required: str | None) -> bool:
    """Whether code that says `// requires: <required>` compiles for `arch`: sm_80 is a minimum, sm_90a is exact."""
    if required is None or arch == required:
        return True
    return not required.endswith("a") and int(arch[3:].rstrip("a")) >= int(required[3:])


@functools.lru_cache
def newest_arch() -> str:
    """The newest architecture this nvcc knows, such as sm_121."""
    done = subprocess.run([_nvcc_or_raise(), "--list-gpu-arch"], capture_output=True, text=True, check=True)
    known: list[str] = re.findall(r"compute_(\d+)$", done.stdout, re.MULTILINE)
    return "sm_" + max(known, key=int)


def _nvcc_or_raise() -> str:
    if (found := nvcc()) is None:
        raise BuildError(missing("cuda"))
    return found


def device_code(key: str, text: str, arch: str) -> Path:
    """A folder with kernel.cubin for `arch` and ptxas.txt, what ptxas said about it."""

    def make(folder: Path) -> None:
        (folder / "kernel.cu").write_text(text)
        command = [_nvcc_or_raise(), *NVCC_FLAGS, arch_flag(arch), "-cubin", "kernel.cu", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"nvcc failed for {arch}:\n{useful(done.stdout + done.stderr)}")
        (folder / "ptxas.txt").write_text(done.stdout + done.stderr)

    return entry(key, make)


@dataclass(frozen=True)
class Resources:
    """What one compiled function takes of a multiprocessor."""

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
    """One record for each function in a `ptxas -v` report; names are demangled where c++filt is installed."""
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
    """The compiler's own messages out of a build log: without command lines, progress and ptxas chatter."""
    lines = output.splitlines()
    kept = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if not _NOISE.match(line) and not before.startswith("FAILED:")  # ninja prints the command after FAILED
    ]
    if len(kept) > limit:
        kept = [*kept[:limit], f"... and {len(kept) - limit} lines more"]
    return "\n".join(kept)
