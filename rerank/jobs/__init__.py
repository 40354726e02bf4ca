"""The jobs that a person starts and MLflow records: calibrate, evaluate, recalibrate, promote..."""
