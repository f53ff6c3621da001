"""Users' files: their source, module and side effects, and the external processes that run them."""
