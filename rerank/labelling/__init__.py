"""Labels made by people: questions, pooled passages and judgements; the terminal is elsewhere."""
