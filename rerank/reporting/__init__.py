"""What maps are worth: measured, beside the baselines, in text, pictures and pages."""
