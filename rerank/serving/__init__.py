"""The HTTP server: requests in, assessments out. Of `rerank`, only the command line imports it."""
