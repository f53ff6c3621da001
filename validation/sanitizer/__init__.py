"""Known false reports of compute-sanitizer, and the probe that demonstrates them."""
