"""Workers: processes for some of the user's methods, each with its own Python and packages."""
