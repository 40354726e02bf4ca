"""Figures of confidences and of their inputs, drawn with matplotlib."""
