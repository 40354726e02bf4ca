"""Answers that say only what the sources say: prompt, answerers, attribution check."""
