"""One operation, many implementations: which is right, how fast is it, how close to the limit of the device."""

__version__ = "0.1.0"
