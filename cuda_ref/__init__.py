"""CUDA implementations: `<op>[_<variant>].cu` holds kernel and extern "C" launcher, the .py beside it calls it."""
