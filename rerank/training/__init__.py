"""Training of the cross-encoder: mining, losses, the trainer."""
