"""What `surefoot fleet up` starts, from a TOML file."""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from surefoot.server.settings import LOOPBACK


class FleetFile(BaseModel):
    """Paths are those of the machines that the servers run on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "fleet"
    model: str
    key: str  # a file with the fleet's key
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    options: tuple[str, ...] = ()  # of `surefoot serve`
    cpus: Annotated[float, Field(ge=0)] = 1.0  # that Ray reserves for a replica
    memory_gb: Annotated[float, Field(ge=0)] = 0.0  # the same; 0: none is reserved
    host: str = "127.0.0.1"  # that the gateway binds
    keys: Annotated[str, Field(validate_default=True)] = ""  # a file of clients' API keys; empty: there are none
    gateway_options: tuple[str, ...] = ()  # of `surefoot fleet gateway`
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    gateway_resource: str = ""  # of Ray, that the gateway's machine has; empty: any machine
    ray_address: str = "auto"  # of the Ray cluster; auto: the one that this machine belongs to
    ready_s: Annotated[float, Field(gt=0)] = 600.0  # within which a replica must be ready after its start

    @field_validator("keys")
    @classmethod
    def _are_given_off_loopback(cls, keys: str, info: ValidationInfo) -> str:
        if not keys and info.data.get("host", LOOPBACK[0]) not in LOOPBACK:
            raise ValueError("a gateway that other machines can reach needs a file of keys (surefoot keys add)")
        return keys


def read_fleet_file(path: Path) -> FleetFile:
    """Raises ValueError with the field that is wrong."""
    try:
        return FleetFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
