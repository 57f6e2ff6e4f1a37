"""The configuration: which files are read, what they may contain, which are trusted."""
