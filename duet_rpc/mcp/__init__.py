"""The registry's face for AI clients: every method of the user's is a tool."""
