"""Headers for Hopper (TMA, mbarriers, wgmma, clusters), and copies of matrices for TMA."""
