"""Defines one colour and one marker for each framework, the same in every plot and table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """The appearance of a framework. `dark` is its colour on a dark page."""

    name: str
    color: str
    dark: str
    marker: str


# Hues of Okabe and Ito (2008), distinct for people with any colour vision. Contrast on the page is at least 3:1.
LOOKS = {
    "triton": Look("Triton", "#0072b2", "#56b4e9", "o"),
    "jax": Look("JAX", "#a4508b", "#e59bd0", "s"),
    "cuda": Look("CUDA", "#00875f", "#2fcf9f", "^"),
    "torch": Look("torch", "#c84e00", "#ff9248", "D"),
    "numpy": Look("NumPy", "#66707c", "#a3adb9", "v"),
    "with": Look("your file", "#8a6d00", "#e8c547", "*"),
}
OTHER = Look("other", "#66707c", "#a3adb9", "P")

INK, MUTED, GRID, PAPER = "#1a1e24", "#5a6470", "#dde2e8", "#ffffff"
DARK = {INK: "#e8ecf1", MUTED: "#9aa5b1", GRID: "#333b45", PAPER: "#14181d"}
"""The colours of text, of secondary text, of grid lines and of the page, each with its colour on a dark page."""


def look(framework: str) -> Look:
    return LOOKS.get(framework, OTHER)


def sort_key(framework: str) -> tuple[int, str]:
    """Sort key of a framework: the order of `LOOKS`, others after them."""
    order = list(LOOKS)
    return (order.index(framework) if framework in order else len(order), framework)


def variables(*, dark: bool) -> dict[str, str]:
    """The CSS variables of the page by name."""
    page = {"ink": INK, "muted": MUTED, "grid": GRID, "paper": PAPER}
    colors = {name: DARK[color] if dark else color for name, color in page.items()}
    return colors | {name: each.dark if dark else each.color for name, each in LOOKS.items()}


def variable_of(color: str) -> str | None:
    """The CSS variable that stands for a colour of the light page."""
    return next((name for name, value in variables(dark=False).items() if value == color), None)
