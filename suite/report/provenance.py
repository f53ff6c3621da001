"""Describes the device, versions and commit of a run: one line for the top of a report, and all facts in tables."""

from __future__ import annotations

from typing import Any

from suite.report.load import Part, Run
from suite.results.render import summary

FIRST_VERSIONS = ("torch", "triton", "jax")


def headline(run: Run) -> str:
    """One line: `610 rows: 452 ok, 158 unsupported · 2026-11-22 · torch 2.11.0 · triton 3.6.0 · driver 580.159.04`.

    The first and the last day, if the folders of the run are of several days. Versions are those of the first folder.
    """
    environment = run.environment
    days = sorted(filter(None, (str(part.environment.get("date_utc", ""))[:10] for part in run.parts)))
    packages = environment.get("packages", {})
    driver = environment.get("device", {}).get("driver")
    parts = [
        summary([entry.row for entry in run.entries]),
        " to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        *(f"{name} {packages[name]}" for name in FIRST_VERSIONS if name in packages),
        f"driver {driver}" if driver else "",
    ]
    return " · ".join(filter(None, parts))


def provenance(run: Run, part: Part) -> tuple[str, list[tuple[str, str]]]:
    """The title and facts of one environment record. Missing facts are left out."""
    record = part.environment
    device, host, system, commit, state = (record.get(name) or {} for name in ("device", "host", "os", "git", "run"))
    rows = [entry.row for entry in part.entries]
    facts = {
        "rows": summary(rows),
        "date": record.get("date_utc"),
        "command": record.get("command"),
        "device": device.get("name"),
        "driver": device.get("driver"),
        "power limit": f"{device['power_limit_w']:g} W" if device.get("power_limit_w") else "",
        "peaks": _peaks(device.get("peaks")),
        "host": _joined(host.get("name"), f"{host['cores']} cores" if host.get("cores") else ""),
        "system": system.get("name"),
        "Python": record.get("python"),
        "packages": _versions(record.get("packages")),
        "toolkits": _versions(record.get("toolkits")),
        "commit": _joined(commit.get("commit"), "with changes" if commit.get("dirty") else ""),
        "digest of the sources": state.get("settings", {}).get("code", {}).get("digest"),
        "recorder": _joined(*sorted({row.recorder for row in rows})),
        "L2 cache": _joined(*sorted({row.cache for row in rows})),
    }
    title = f"{run.label}: {part.name}" if part.name else run.label
    return title, [(name, str(value)) for name, value in facts.items() if value]


def _joined(*texts: str | None) -> str:
    return ", ".join(text for text in texts if text)


def _versions(packages: Any) -> str:
    return ", ".join(f"{name} {version}" for name, version in (packages or {}).items())


def _peaks(peaks: Any) -> str:
    if not peaks:
        return ""
    rates = ", ".join(f"{name} {rate:g}" for name, rate in peaks["tflops"].items())
    return f"{peaks['gb_per_s']:g} GB/s; TFLOP/s: {rates}; {peaks['source']}"
