"""How announced pages are fetched through the proxy: left in the run folder by the listener."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.errors import StoreError
from headway.squid.spool import FOLDER
from headway.store.failures import clear_errors
from headway.store.inplace import put_in_place

_NAME = "settings.json"


class ProxySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    proxy: str
    delay_s: float = 10.0
    """After an announcement, so that the proxy has the page by then."""
    refresh_after_s: float = 86400.0
    """A younger copy is fresh."""
    interval_s: float = 1.0
    """Between two requests for pages of one site: most never reach it, but some do."""
    max_connections: int = 8
    bandwidth_bytes_per_s: float | None = None
    timeout_s: float = 30.0


def save_settings(run_folder: Path, settings: ProxySettings) -> None:
    path = run_folder / FOLDER / _NAME
    with clear_errors(path):
        path.parent.mkdir(mode=0o755, exist_ok=True)
        # The way to the proxy may have a password in it.
        put_in_place(path, msgspec.json.encode(settings), 0o600)


def load_settings(run_folder: Path) -> ProxySettings | None:
    """None where nobody has ever listened."""
    path = run_folder / FOLDER / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProxySettings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}; start `headway listen-squid` again") from None
