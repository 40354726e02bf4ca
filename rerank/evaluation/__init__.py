"""Rankings and confidences measured against labels, beside baselines."""
