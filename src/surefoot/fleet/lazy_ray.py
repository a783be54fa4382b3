"""Ray, imported when a command needs it: serving on one machine never does."""

from typing import Any


def import_ray() -> Any:
    """Raises ValueError if it is not installed."""
    try:
        import ray  # noqa: PLC0415
    except ImportError:
        raise ValueError("Ray is not installed: pip install 'surefoot[fleet]'") from None
    return ray
