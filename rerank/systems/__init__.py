"""Search systems of other projects, with their own collections: a file each."""
