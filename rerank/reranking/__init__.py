"""The second stage: the cross-encoder that scores a passage, and the job that trains it."""
