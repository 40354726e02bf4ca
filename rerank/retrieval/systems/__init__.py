"""First stages from other projects: search systems with their own collections, one file each."""
