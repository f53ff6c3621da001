"""Records the launches of a call and repeats them for later calls that differ only in values and addresses.

A launcher checks its arguments, chooses tiles and grid, and describes operands to the device, which takes several times
as long as the launch itself. All this depends only on the options and on what `kind_of` returns for the tensors. So a
function that is decorated by `kept` runs

1. as it is written, in the first call of a kind, which may build, tune and compile;
2. as it is written, in the second call, while a `Recording` notes what it allocates and launches;
3. as a `Plan`, in later calls: the same allocations and launches, at the addresses of the tensors given.

A call always runs as it is written if torch computes in it, if it returns no new tensor, or if its launch cannot be
repeated. Each thread keeps its own plans, so that no two threads fill the arguments of one launch.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/kept.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from operator import methodcaller
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .operator import operator

LIMIT = 512
"""Largest number of plans per thread. The oldest one is dropped first."""
ALIGNMENT = 16
"""In bytes. Compilers and launchers distinguish addresses only by whether they are multiples of this."""
MATCHERS = 4
"""Largest number of matchers per plan. A matcher is valid only in the torch modes, such as no_grad, of its creation."""
PLAIN = (Tensor, torch.nn.Parameter)
ALLOCATORS = frozenset(
    getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)

Kind = tuple[Any, ...]
Issue = Callable[[Sequence[int], int], int]
"""Launches a kernel with these addresses on a stream. Returns 0, or the number of an error."""
Repeatable = Callable[[Callable[[Tensor], int]], Issue]
"""Makes an `Issue` from a past launch. Its argument is a function that returns the index of a tensor's address in the
addresses of a plan. Raises `NotRepeatable`."""
Function = TypeVar("Function", bound=Callable[..., Any])

is_grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)


class NotRepeatable(Exception):  # noqa: N818
    """The launch of a call cannot be repeated: the call must always run as it is written."""


class Plan:
    """The allocations and launches of a call. Called with tensors of the recorded kind, it returns the results.

    Returns None if the tensors have another alignment, if their GPU is not the current one, or if a launch fails. The
    call as it is written then selects the device, or raises the error.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        allocations: Sequence[Callable[[Tensor], Tensor]],
        launches: Sequence[Issue],
        results: int | tuple[int, ...],
        views: Sequence[tuple[int, int]] = (),
    ) -> None:
        device = tensors[0].device
        self.device = device.index if device.type == "cuda" else None
        self.aligned = all(x.data_ptr() % ALIGNMENT == 0 for x in tensors)
        self.allocations, self.launches, self.results = tuple(allocations), tuple(launches), results
        self.views = tuple(views)
        self.is_simple = len(allocations) == len(launches) == 1 and results == 0 and not views
        self.options: dict[str, Any] = {}
        self.matches: Callable[..., bool] = _never
        self.matchers = MATCHERS if self.aligned else 0

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        stream = 0
        if self.device is not None:
            if current_device() != self.device:
                return None
            stream = current_stream(self.device)
        addresses, together = [], 0
        for x in tensors:
            address = x.data_ptr()
            addresses.append(address)
            together |= address
        if self.aligned and together % ALIGNMENT != 0:
            return None
        if self.is_simple:
            out = self.allocations[0](tensors[0])
            addresses.append(out.data_ptr())
            return None if self.launches[0](addresses, stream) else out
        new = [allocate(tensors[0]) for allocate in self.allocations]
        addresses += [x.data_ptr() for x in new]
        addresses += [addresses[place] + offset for place, offset in self.views]
        for issue in self.launches:
            if issue(addresses, stream):
                return None
        results = self.results
        return tuple([new[each] for each in results]) if isinstance(results, tuple) else new[results]


class Recording(TorchDispatchMode):  # type: ignore[misc]
    """While entered, records what torch allocates in this thread, and whether it computes. Launchers add to
    `launches`."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[Tensor] = []
        self.launches: list[Repeatable] = []
        self.computes = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in ALLOCATORS:
            self.allocated.append(result)
        elif not func.is_view:
            self.computes = True
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, because skipping would import TorchDynamo, which takes a second or two."""
        return False

    def plan(self, tensors: Sequence[Tensor], result: Any) -> Plan:
        """The plan of the call with these tensors that returned `result`. Raises `NotRepeatable`."""
        like = tensors[0]
        memory = [*tensors, *self.allocated]
        places = {x.data_ptr(): place for place, x in enumerate(memory)}
        usual = all(x.is_contiguous() and x.device == like.device for x in self.allocated)
        aligned = all(x.data_ptr() % ALIGNMENT == 0 for x in self.allocated)
        if self.computes or not self.launches or not usual or not aligned:
            raise NotRepeatable
        if len(places) < len(memory) or 0 in places:
            raise NotRepeatable

        views: list[tuple[int, int]] = []  # index of the allocated tensor, offset in bytes

        def place(x: Tensor) -> int:
            address = x.data_ptr()
            if (found := places.get(address)) is not None:
                return found
            for at, each in enumerate(self.allocated, len(tensors)):
                if 0 < address - each.data_ptr() < each.numel() * each.element_size():
                    places[address] = len(memory) + len(views)
                    views.append((at, address - each.data_ptr()))
                    return places[address]
            raise NotRepeatable

        def number(x: Any) -> int:  # found by address: a result may be a view of the whole allocated tensor
            if not isinstance(x, Tensor) or not x.is_contiguous():
                raise NotRepeatable
            found = places.get(x.data_ptr(), 0) - len(tensors)
            if not 0 <= found < len(self.allocated):
                raise NotRepeatable
            if x.dtype != self.allocated[found].dtype or x.numel() != self.allocated[found].numel():
                raise NotRepeatable
            self.allocated[found] = x
            return found

        results = tuple(map(number, result)) if isinstance(result, tuple) else number(result)
        allocations = [_allocation(x, like) for x in self.allocated]
        launches = [repeatable(place) for repeatable in self.launches]
        return Plan(tensors, allocations, launches, results, views)


def _allocation(x: Tensor, like: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns a function that allocates a tensor like x, given the first tensor of a call, in the cheapest way."""
    allocate: Callable[[Tensor], Tensor] = torch.empty_like
    if _form(x)[1:] != _form(like)[1:]:
        dtype = {} if x.dtype == like.dtype else {"dtype": x.dtype}
        allocate = methodcaller("new_empty", *(x.shape or [()]), **dtype)
    return allocate


def _form(x: Tensor) -> Kind:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


class _Thread(threading.local):
    """State of a thread: its plans; the latest plan of each function; the kinds of calls made once, with a flag whether
    these may be recorded; the current recording."""

    def __init__(self) -> None:
        self.plans: dict[Kind, Plan] = {}
        self.latest: dict[Callable[..., Any], Plan] = {}
        self.recordable: dict[Kind, bool] = {}
        self.recording: Recording | None = None


_thread = _Thread()


def forget() -> None:
    """Drops all plans of this thread, for example after a change of what the functions launch."""
    global _thread
    _thread = _Thread()


def recording() -> Recording | None:
    """The current recording of this thread, to which a launcher adds its launch; None if there is none."""
    return _thread.recording


def kind_of(x: Tensor) -> Kind:
    """The properties of a tensor on which the checks, the choice of a kernel and its arguments may depend."""
    grad = x.requires_grad and is_grad_enabled()
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNMENT, x.is_neg(), grad, x.__class__


def _never(*_: Tensor) -> bool:
    return False


def matcher(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """A function that returns whether other tensors are of the same kind, apart from their alignment.

    It is the guard of torch.compile, five times as fast as `kind_of`. Without such a guard in this torch, it always
    returns False.
    """
    try:
        guards = torch._C._dynamo.guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(x.shape) for x in tensors],
            dynamic_dims_strides=[list(x.stride()) for x in tensors],
        )
    except (AttributeError, TypeError):
        return _never
    check: Callable[..., bool] = guards.check
    return check


def kept(function: Function) -> Function:
    """Decorator of a function of positional tensors and keyword options. torch.compile treats it as an operator."""

    @wraps(function)
    def call(*tensors: Any, **options: Any) -> Any:
        if is_compiling() and as_operator is not None:
            return as_operator(*tensors, **options)
        plan = _thread.latest.get(function)
        try:
            if plan is not None and not (plan.options == options and plan.matches(*tensors)):
                plan = None
        except (TypeError, ValueError):  # arguments that are not tensors, or options that cannot be compared
            plan = None
        if plan is not None and (result := plan(tensors)) is not None:
            return result
        return _look_up(function, tensors, options)

    as_operator = operator(call)
    return call  # type: ignore[return-value]


def _look_up(function: Callable[..., Any], tensors: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Runs a call whose kind differs from that of the function's last call."""
    try:
        kind = (function, *map(kind_of, tensors), *options.items())
        plan = _thread.plans.get(kind)
    except (AttributeError, TypeError, RuntimeError):  # not tensors with memory: the function raises the error
        return function(*tensors, **options)
    if plan is None:
        return _as_written(kind, function, tensors, options)
    _thread.latest[function] = plan
    if plan.matchers > 0:
        plan.matches, plan.matchers = matcher(tensors), plan.matchers - 1
    result = plan(tensors)
    return function(*tensors, **options) if result is None else result


def _as_written(kind: Kind, function: Callable[..., Any], tensors: tuple[Tensor, ...], options: dict[str, Any]) -> Any:
    """Runs a call without a plan. The second call of a kind is recorded."""
    thread = _thread
    recordable = thread.recordable.get(kind)
    if thread.recording is not None or not (recordable and _are_apart(tensors)):
        result = function(*tensors, **options)
        usual = all(x.__class__ in PLAIN for x in tensors) and not any(map(torch.is_tensor, options.values()))
        if thread.recording is None and recordable is None and usual:
            _keep(thread.recordable, kind, True)
        return result
    plans, latest, recording = thread.plans, thread.latest, Recording()
    thread.plans, thread.latest, thread.recording = {}, {}, recording  # functions that this one calls are recorded too
    try:
        with recording:
            result = function(*tensors, **options)
    finally:
        thread.plans, thread.latest, thread.recording = plans, latest, None
    try:
        plan = recording.plan(tensors, result)
        plan.options = options
        _keep(plans, kind, plan)
    except NotRepeatable:
        thread.recordable[kind] = False
    return result


def _are_apart(tensors: Sequence[Tensor]) -> bool:
    """True if all tensors of a call have different addresses."""
    return len({x.data_ptr() for x in tensors}) == len(tensors)


def _keep(table: dict[Kind, Any], kind: Kind, value: Any) -> None:
    if len(table) >= LIMIT:
        del table[next(iter(table))]
    table[kind] = value
