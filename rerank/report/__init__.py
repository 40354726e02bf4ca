"""The reports of jobs: text, pictures, one HTML page."""
