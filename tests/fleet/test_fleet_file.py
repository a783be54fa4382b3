"""The file that says what a fleet is made of."""

from pathlib import Path

import pytest

from surefoot.fleet.fleet_file import FleetFile, read_fleet_file
from surefoot.fleet.ray_cluster import gateway_command, replica_names, serve_command

WORDS = (
    'name = "team"\nmodel = "m.gguf"\nkey = "k"\nreplicas = 2\nkeys = "keys.toml"\noptions = ["--max-running", "4"]\n'
)


def read(tmp_path: Path, text: str) -> FleetFile:
    (tmp_path / "fleet.toml").write_text(text)
    return read_fleet_file(tmp_path / "fleet.toml")


def test_what_is_started(tmp_path: Path) -> None:
    file = read(tmp_path, WORDS)
    serve = " ".join(serve_command(file, "10.0.0.2", 8101))
    assert serve.endswith("serve m.gguf --host 10.0.0.2 --port 8101 --fleet-key k --keys keys.toml --max-running 4")
    gateway = " ".join(gateway_command(file, Path("list")))
    assert gateway.endswith("fleet gateway --servers list --fleet-key k --host 127.0.0.1 --port 8080 --keys keys.toml")
    assert replica_names(file) == ["replica-0", "replica-1"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (WORDS + "replica = 3\n", "unknown field replica$"),
        (WORDS.replace("replicas = 2", "replicas = 0"), "replicas"),
        (WORDS.replace('"team"', '"Team A"'), "name"),
        (WORDS.replace('model = "m.gguf"\n', ""), "model is missing"),
        (WORDS.replace('keys = "keys.toml"', 'host = "0.0.0.0"'), "keys: .*other machines can reach"),
        ("name =", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        read(tmp_path, text)
