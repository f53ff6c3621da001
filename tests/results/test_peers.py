"""Peers: public kernel libraries that rows are compared with, if they are installed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.rows import row

from suite.hardware.device import Device
from suite.implementations import builtin
from suite.results.peers import set_vs_peer
from suite.results.render.overview import findings


def test_rows_are_held_against_the_best_peer() -> None:
    ours, slow, best = row("triton", 0.96), row("triton/liger", 0.5), row("jax/tokamax", 0.8)
    vendor, untimed = row("torch", 1.0), replace(row("cuda"), device_us=None)
    slow.peer, best.peer = "liger-kernel", "tokamax"
    rows = [ours, slow, best, vendor, untimed]
    set_vs_peer(rows)
    assert [each.vs_peer for each in rows] == [pytest.approx(1.2), pytest.approx(0.625), 1.0, pytest.approx(1.25), None]
    assert "tokamax" not in " ".join(findings([best, vendor])), "a peer is not ours"


def test_without_a_peer_there_is_no_ratio() -> None:
    rows = [row("triton", 0.96), row("torch", 1.0)]
    rows[0].vs_peer = 2.0
    set_vs_peer(rows)
    assert [each.vs_peer for each in rows] == [None, None]


def test_a_peer_that_is_missing_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = next(each for each in builtin.implementations("softmax") if each.name == "triton/liger")
    monkeypatch.setattr(peer.adapter, "missing", lambda device: None)
    found = replace(peer, requires=None, peer="no-such-package").obstacle(Device("cpu"))
    assert found == ("unavailable", "no-such-package is not installed; pip install '.[peers]'")
