"""Labelled sets: read, checked and built, what their labels say of a ranking, and feedback."""
