"""Headers of Hopper (TMA, mbarriers, wgmma, clusters), and copies with rows that TMA can read."""
