"""What can be called. Methods know no wire."""
