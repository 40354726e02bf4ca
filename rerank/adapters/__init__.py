"""A calibrated model inside other frameworks, a file each."""
