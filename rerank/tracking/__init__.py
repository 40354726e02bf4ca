"""MLflow: its client, runs and model registry. Importing a module of it does not import MLflow."""
