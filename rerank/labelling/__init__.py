"""Manual labelling: questions, pooled passages and judgements; the user interface is elsewhere."""
