"""The first stage: BM25 and dense search, fused by reciprocal rank, or another search system."""
