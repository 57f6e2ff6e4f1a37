"""`python -m duet_rpc` is the same program as `duet-rpc`."""

from duet_rpc.cli import main

main()
