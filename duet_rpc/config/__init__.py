"""The configuration: which files count, what stands in them, and which of it is trusted."""
