"""Parity fixtures: tiny NLI classifiers, their golden scores, and the comparison of the program with them."""
