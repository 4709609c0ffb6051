"""Parity fixtures: tiny NLI classifiers, their golden scores, and the check of a binary against them."""
