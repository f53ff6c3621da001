"""Many cases on many devices: the cases of a plan become tasks, each of which runs on one device.

`local.py` gives them to processes on this host (`--gpus`). `session.py` runs a task, in such a process or anywhere.
"""
