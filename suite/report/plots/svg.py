"""Shortens an SVG of matplotlib, which repeats the style of every mark and writes coordinates with six decimals."""

from __future__ import annotations

import itertools
import re

TAG, BETWEEN = re.compile(r"<[^>]*>"), re.compile(r">\s+<")
"""A tag, outside of which stand texts, which keep all of their digits; the space between two tags."""
LONG_NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")
REDUNDANT = re.compile(r' transform="rotate\(-?0 [^"]*"|<!--.*?-->')
MARKS, STYLE = re.compile(r"(?:<use [^>]*/>\s*){2,}"), re.compile(r' style="[^"]*"')


def compact(text: str, prefix: str) -> str:
    """The same drawing in fewer bytes. Ids begin with `prefix`; those that nothing refers to are left out."""
    text = TAG.sub(lambda found: LONG_NUMBER.sub(r"\1", REDUNDANT.sub("", found[0])), text)
    text = _without_bare_groups(_with_short_ids(text, prefix))
    return BETWEEN.sub(">\n<", MARKS.sub(_with_one_style, text))


def _with_short_ids(text: str, prefix: str) -> str:
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', text))
    short = {each: f"{prefix}-{place}" for place, each in enumerate(used)}
    text = re.sub(r' id="([^"]+)"', lambda found: f' id="{short[found[1]]}"' if found[1] in used else "", text)
    return re.sub(r'(href="|url\()#([^")]+)', lambda found: f"{found[1]}#{short[found[2]]}", text)


def _without_bare_groups(text: str) -> str:
    """Removes the tags of groups without attributes, and keeps what is in the groups."""
    bare: list[bool] = []

    def kept(found: re.Match[str]) -> str:
        tag = found[0]
        if tag == "</g>":
            return "" if bare.pop() else tag
        if re.match(r"<g[ >]", tag) and not tag.endswith("/>"):
            bare.append(tag == "<g>")
            return "" if bare[-1] else tag
        return tag

    return TAG.sub(kept, text)


def _with_one_style(marks: re.Match[str]) -> str:
    """Puts neighbours of the same style into a group with that style, which they inherit."""
    parts: list[str] = []
    for style, same in itertools.groupby(TAG.findall(marks[0]), lambda mark: "".join(STYLE.findall(mark))):
        if style and not re.search(r"[ \"]opacity", style):  # is not inherited: a group's holds for all of it at once
            parts += [f"<g{style}>", *(STYLE.sub("", mark) for mark in same), "</g>"]
        else:
            parts += same
    return "\n".join(parts)
