"""The text of a mistake with minus infinity that several operations have."""

MINUS_INFINITY = "a {} that began with a block of -inf gave NaN: -inf minus -inf"
