"""MLflow: its client, runs and model registry."""
