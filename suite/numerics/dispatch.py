"""The base of modes that see each operation of torch."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """A `TorchDispatchMode` whose first call does not import TorchDynamo, which takes a second or two."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would import TorchDynamo to keep it away from this mode."""
        return False
