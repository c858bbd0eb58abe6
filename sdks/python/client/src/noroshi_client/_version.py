from __future__ import annotations

VERSION = "0.1.0"
USER_AGENT = f"noroshi-client-python/{VERSION}"
