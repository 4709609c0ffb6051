"""Training: from labelled posts to a model folder. tools/train.py is the command."""
