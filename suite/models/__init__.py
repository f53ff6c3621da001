"""The work of a transformer's layers: translates a model's configuration to shapes of the operations."""
