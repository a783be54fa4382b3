"""The imports of every module, read from the syntax tree: nothing is executed."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Each distribution's package, from the repository's root.
PACKAGES = {"surefoot": Path("src/surefoot"), "surefoot_compress": Path("compress/src/surefoot_compress")}

# Each layer with the layers right below it; it may import these and all below them. A new package belongs in here.
# A distribution of its own is one layer, and its `cli` another, which may use surefoot's options and progress bars.
LAYERS: dict[str, tuple[str, ...]] = {
    "core": (),
    "machine": (),
    "charts": (),
    "kv": ("core",),
    "disk_cache": ("machine",),
    "scheduler": ("kv",),
    "ops": ("machine", "core"),
    "text": ("machine", "core"),
    "formats": ("ops",),
    "weights": ("formats",),
    "models": ("weights",),
    "sampling": ("weights",),
    "speculate": ("ops",),
    "runner": ("kv", "models", "sampling", "speculate"),
    "cache": ("runner", "disk_cache"),
    "speed": ("models",),
    "engine": ("scheduler", "cache", "speed"),
    "api": ("engine", "text"),
    "server": ("api",),
    "front": ("server",),
    "plan": ("api", "charts"),
    "bench": ("api", "charts"),
    "evaluate": ("api", "charts"),
    "verify": ("api",),
    "fleet": ("server",),
    "cli": ("front", "plan", "bench", "evaluate", "verify", "fleet"),
    "__main__": ("cli",),
    "compress": ("evaluate",),
    "compress.cli": ("compress", "cli"),
}
# Folders of one layer, and files beside them, each with those right below it. Benchmarks' subjects do not know each
# other: what two of them need is the harness's.
ROOMS: dict[str, dict[str, tuple[str, ...]]] = {
    "bench": {
        "harness": (),
        "peers": ("harness",),
        **dict.fromkeys(("model", "engine", "serve", "agent"), ("peers",)),
    },
    "server": {
        "errors": (),
        "settings": (),
        "metrics": (),
        "overview": ("metrics",),
        "tracing": (),
        "schemas": ("errors",),
        "access": ("errors", "settings"),
        "system_messages": (),
        "prompts": ("access", "system_messages"),
        "recent_prompts": (),
        "bodies": ("access",),
        "service": (
            "metrics",
            "overview",
            "prompts",
            "recent_prompts",
            "schemas",
            "tracing",
            "bodies",
        ),
        "answer": ("service",),
        "batch": ("answer",),
        "routes": ("batch",),
        "channel": (),
        "listening": ("settings",),
        "draining_server": ("access", "listening"),
        "door": ("draining_server",),
        "app": ("routes", "channel", "door"),
        "banner": ("settings",),
        "serve": ("app", "banner"),
    },
}
# Folders whose modules do not import each other: what two of them need lies below.
APART = {("server", "routes")}
STANDARD_LIBRARY_ONLY = {"core", "machine", "charts", "kv", "scheduler"}
# Packages from outside that only some layers may know.
RESERVED: dict[str, set[str]] = {
    "torch": {"compress"},
    "transformers": set(),
    "gguf": {"compress"},
    "safetensors": {"compress"},
    "threadpoolctl": {"compress"},
    "tokenizers": {"text", "compress"},
    "jinja2": {"text"},
    "ray": {"fleet"},
    "fastapi": {"server", "front"},
    "starlette": {"server", "front", "fleet"},
    "uvicorn": {"server", "cli", "bench"},
    "pydantic": {"server", "front", "fleet"},
    "prometheus_client": {"server", "front", "fleet", "cli"},
    "httpx2": {"front", "fleet", "bench", "cli"},
    "llguidance": {"sampling"},
    "ctypes": {"ops", "evaluate"},  # evaluate inside a peer's process
    "typer": {"cli", "compress.cli"},
    "cryptography": {"disk_cache"},
    "opentelemetry": {"server"},
    "sqlite3": {"disk_cache"},
}


@dataclass(frozen=True)
class Import:
    importer: str  # the module that imports
    target: str  # the module that is imported
    nested: bool  # inside a function or class
    line: int

    @property
    def layer(self) -> str:
        return layer_of(self.importer)

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def layer_of(module: str) -> str:
    """The layer's name; empty for the package's own top module."""
    package, layer, *_ = [*module.split("."), ""]
    if package == "surefoot":
        return layer
    return package.removeprefix("surefoot_") + (".cli" if layer == "cli" else "")


def allowed_below(layer: str, layers: dict[str, tuple[str, ...]] = LAYERS) -> set[str]:
    """The layer itself and every layer under it."""
    return {layer}.union(*(allowed_below(below, layers) for below in layers.get(layer, ())))


def find_modules(root: Path) -> dict[str, Path]:
    """Module names with their files, in the repository with this root."""
    modules = {}
    for package in PACKAGES.values():
        for file in sorted((root / package).rglob("*.py")):
            parts = file.relative_to(root / package.parent).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def _targets(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        # `from package import name` means the module `package.name` if there is one.
        yield from sorted({full if (full := f"{base}.{alias.name}") in modules else base for alias in node.names})


def _walk(node: ast.AST, nested: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, nested
        scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        yield from _walk(child, nested or scope)


def find_imports(root: Path) -> list[Import]:
    modules = find_modules(root)
    imports = []
    for module, file in modules.items():
        for node, nested in _walk(ast.parse(file.read_text(), str(file)), nested=False):
            for target in _targets(node, modules):
                imports.append(Import(module, target, nested, getattr(node, "lineno", 0)))
    return imports


def is_ours(target: str) -> bool:
    return target.partition(".")[0] in PACKAGES


def unknown_layers(root: Path) -> list[str]:
    return sorted({layer_of(module) for module in find_modules(root)} - LAYERS.keys() - {""})


def wrong_direction(root: Path) -> list[str]:
    """Imports of a layer that does not stand below; the package's top module imports no layer, since all load it."""
    return [
        str(imported)
        for imported in find_imports(root)
        if is_ours(imported.target)
        and layer_of(imported.target) not in (allowed_below(imported.layer) if imported.layer else set()) | {""}
    ]


def room_of(module: str) -> str:
    """The folder inside the layer; empty for the layer itself."""
    return [*module.split("."), "", ""][2]


def wrong_room(root: Path) -> list[str]:
    """Imports between folders of one layer against their direction, and folders that have no direction."""
    violations = []
    for imported in find_imports(root):
        rooms, room = ROOMS.get(imported.layer, {}), room_of(imported.importer)
        if not rooms or not room:
            continue
        if room not in rooms:
            violations.append(f"{imported.importer} lies in no folder with a direction")
        elif is_ours(imported.target) and layer_of(imported.target) == imported.layer:
            allowed = allowed_below(room, rooms) - ({room} if (imported.layer, room) in APART else set())
            violations += [] if room_of(imported.target) in allowed else [str(imported)]
    return violations


def relative(root: Path) -> list[str]:
    return [str(imported) for imported in find_imports(root) if imported.target.startswith(".")]


def hidden(root: Path) -> list[str]:
    """Imports of our own modules inside functions: the usual way to dodge a cycle."""
    return [str(imported) for imported in find_imports(root) if imported.nested and is_ours(imported.target)]


def foreign(root: Path) -> list[str]:
    """Imports from outside that the layer must not know."""
    violations = []
    for imported in find_imports(root):
        name = imported.target.partition(".")[0]
        if is_ours(imported.target):
            continue
        pure = imported.layer in STANDARD_LIBRARY_ONLY and name not in sys.stdlib_module_names
        if pure or imported.layer not in RESERVED.get(name, {imported.layer}):
            violations.append(str(imported))
    return violations


def find_cycle(root: Path) -> list[str]:
    """Modules that import each other in a ring, or nothing."""
    modules = find_modules(root)
    graph: dict[str, list[str]] = {module: [] for module in modules}
    for imported in find_imports(root):
        if imported.target in modules:
            graph[imported.importer].append(imported.target)
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in graph[module]:
            if ring := visit(target, [*path, module]):
                return ring
        done.add(module)
        return []

    return next((ring for module in graph if (ring := visit(module, []))), [])
