"""Values of eps that a kernel may hold as a constant."""

EPS_VALUES = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12)
