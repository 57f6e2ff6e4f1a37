"""The commands for people at a terminal. A daemon never imports these."""
