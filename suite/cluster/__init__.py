"""Many cases on many devices: the cases of a plan become tasks, each of which runs on one device.

`local.py` gives the tasks to processes on this host (`--gpus`), `remote.py` to the workers of a Dask cluster
(`--cluster`). `session.py` runs a task inside such a process.
"""
