"""The version, in one place: the build, the package and the records of results read it here."""

__version__ = "0.1.0"
