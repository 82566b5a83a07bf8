"""The version's one home: the package, the library and the wheel read it here."""

__version__ = "0.1.0"
