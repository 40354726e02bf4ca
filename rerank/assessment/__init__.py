"""From candidates to an assessment: features, relevance, confidence, sufficiency, decisions."""
