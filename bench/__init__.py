"""Measurements of what people do with duet-rpc, beside its peers, in one run."""
