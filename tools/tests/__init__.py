"""Tests of the tools, on tiny models with random weights."""
