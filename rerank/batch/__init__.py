"""Batch rescoring: a file of queries in, a file of predictions out, in the order of the input."""
