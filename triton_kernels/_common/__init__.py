"""Device functions that kernels share: tile order, rows, TMA."""
