"""Measurements: this project beside the limits of what can be done, in one run."""
