"""Proof that the timer measures correctly on this machine: `python -m suite doctor --timer`.

Every framework launches work of known cost, and the recorder that `compare` uses records it:

- a spin of a given number of clock cycles takes this number divided by the SM clock, and agrees with the host's clock;
- twice the work takes twice the time, in every framework, for kernels, copies and fills;
- an idle gap between two kernels is not counted, overlapping kernels are counted once, and no kernel is lost;
- evicting the cache makes data as cold as data that was never accessed.

`checks.py` has the comparison of recorded and expected times and `expectations.py` the expected times; `groups/` has
the calls with their checks and `work*` the kernels they launch; `overhead.py` measures what recording adds to wall
time; `proof.py` runs everything and `render.py` writes the table.
"""
