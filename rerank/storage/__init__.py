"""Files and folders: atomic, verified, cleaned up after a crash."""
