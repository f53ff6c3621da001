"""`python -m suite doctor`: installed tools and packages, the device's measured peaks, and the proof of the timer."""
