"""`history` shows how the times of a device's rows changed from run to run."""
