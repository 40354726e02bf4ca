"""Candidates to an assessment: features, relevance, confidence, sufficiency, decisions."""
