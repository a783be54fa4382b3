"""The description of a fleet for `surefoot fleet up`, from a TOML file."""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from surefoot.server.errors import first_fault
from surefoot.server.settings import LOOPBACK


class FleetFile(BaseModel):
    """Paths are paths on the machines that run the servers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "fleet"
    model: str
    key: str  # a file with the fleet's key
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    options: tuple[str, ...] = ()  # of `surefoot serve`
    cpus: Annotated[float, Field(ge=0)] = 1.0  # cores that Ray reserves for each replica
    memory_gb: Annotated[float, Field(ge=0)] = 0.0  # memory that Ray reserves for each replica; 0: none
    host: str = "127.0.0.1"  # address that the gateway binds
    keys: Annotated[str, Field(validate_default=True)] = ""  # a file of clients' API keys; empty: no keys
    gateway_options: tuple[str, ...] = ()  # of `surefoot fleet gateway`
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    gateway_resource: str = ""  # Ray resource of the machine that runs the gateway; empty: any machine
    ray_address: str = "auto"  # address of the Ray cluster; auto: the cluster of this machine
    ready_s: Annotated[float, Field(gt=0)] = 600.0  # longest time from a replica's start until it is ready

    @field_validator("keys")
    @classmethod
    def _are_given_off_loopback(cls, keys: str, info: ValidationInfo) -> str:
        if not keys and info.data.get("host", LOOPBACK[0]) not in LOOPBACK:
            raise ValueError("a gateway that other machines can reach needs a file of API keys (surefoot keys add)")
        return keys


def read_fleet_file(path: Path) -> FleetFile:
    """Raises ValueError that names the first invalid field."""
    try:
        return FleetFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error.errors())}") from None
