"""Tests of the tools, on tiny models of random weights."""
