"""The work of a transformer's layers: from its configuration to shapes of the operations."""
