"""The environments of workers: which Python and which packages a file of methods asks for."""
