"""What compute-sanitizer cannot see, and the probe that shows it."""
