"""The programs that duet-rpc is measured against: each answers `version`, `count` and `tally`."""
