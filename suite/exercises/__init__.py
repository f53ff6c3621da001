"""The exercises of the course (docs/learn): files with a gap, and the verdict on a filled one.

- catalogue.py: the exercises of `examples/exercises`, found by name.
- gap.py: the gap of a file, between its lines `TODO` and `END`.
- judge.py: calls a file in this process and judges its results.
- apart.py: the same in a process of its own, which may crash or hang.
"""
