"""The commands of `rerank`, one module each: its arguments, what it runs, what it prints."""
