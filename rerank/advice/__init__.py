"""What to do with an assessment: why it is so, how many passages to take, when to try again."""
