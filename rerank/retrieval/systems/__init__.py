"""First stages that are not ours: search systems with a collection of their own, a file each."""
