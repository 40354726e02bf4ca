"""What a job tells people: text, pictures, one HTML page."""
