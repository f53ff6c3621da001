"""One process from which the external processes of all tests here are forked: it imports torch once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from external_files import CPU, SharedProcess

from suite.external.fork_server import ExternalForkServer


@pytest.fixture(scope="session")
def external_server() -> Iterator[ExternalForkServer]:
    server = ExternalForkServer(CPU)
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared(external_server: ExternalForkServer) -> Iterator[SharedProcess]:
    process = SharedProcess(external_server)
    yield process
    process.close()
