"""Model folders: graphs built for speed from Hugging Face classifiers, proved against torch, and their manifest."""
