"""CUDA implementations: `<op>[_<variant>].cu` has the kernel and its extern "C" launcher, the .py calls it."""
