"""The HTTP server: requests in, assessments out. It imports the rest; nothing imports it."""
