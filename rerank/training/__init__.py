"""Training of the cross-encoder and the bi-encoder: mining, losses, the trainer."""
