"""tcgemm.use: torch's own products run through tcgemm. docs/guides/use.md tells how it works."""

from tcgemm.override.report import UseReport, UseRow
from tcgemm.override.use import Use, is_active, use

__all__ = ["Use", "UseReport", "UseRow", "is_active", "use"]
