"""`history`: how the rows of a device have moved from run to run."""
