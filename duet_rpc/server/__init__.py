"""The shell of `duet-rpc rpc`: it reads, waits, writes, logs and exits."""
