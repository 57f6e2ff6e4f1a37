"""`duet-rpc gateway`: many servers behind one connection."""
