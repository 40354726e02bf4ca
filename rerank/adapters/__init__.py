"""A calibrated model inside other frameworks, one module each."""
