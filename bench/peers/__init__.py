"""The programs that this project is measured against: each answers `version`, and no more."""
