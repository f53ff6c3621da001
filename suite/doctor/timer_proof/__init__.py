"""Proof that the timer tells the truth on this machine: `python -m suite doctor --timer`.

Work whose cost is known beforehand, launched by every framework, recorded by the recorder that `compare` uses:

- a spin of a number of clock cycles takes the cycles over the SM clock, and by the host's clock as long as recorded;
- twice the work takes twice the time, in every framework, for kernels, copies and fills alike;
- an idle gap between two kernels does not count, kernels that overlap count once, and no kernel is lost;
- evicting the cache makes data as cold as data that was never touched.

`checks.py` holds what is judged and how, `groups.py` the work and what it should take, `work*` the kernels.
"""
