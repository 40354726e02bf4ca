"""calibrated-rerank: retrieval that knows when it is right."""
