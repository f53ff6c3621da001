"""`python -m suite doctor`: what is installed, the device's measured peaks, and the proof of the timer."""
