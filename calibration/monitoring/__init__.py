"""What is watched after calibration: drift, accuracy over time, and updates from new labels."""
