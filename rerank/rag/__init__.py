"""From confidence to action: gate, advice, retrieval assessment, adaptive retrieval, answers."""
