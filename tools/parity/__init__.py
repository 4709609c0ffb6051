"""Parity fixtures: tiny models with random weights, and golden scores with which the tests compare topicmill."""
