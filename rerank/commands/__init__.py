"""The commands of `rerank`, a module each: its arguments, what it runs, what it prints."""
