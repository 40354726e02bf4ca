"""The first stage: BM25 and dense search over one index, fused by reciprocal rank."""
