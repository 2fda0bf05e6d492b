"""Grading: submissions run in a sandbox and judged outside it."""
# Plain module: edited by hand, no notebook exports it.
