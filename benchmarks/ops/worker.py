"""The main loop of a peer's process: reads requests and writes replies, each a line of JSON.

Runs in the peer's venv, where surefoot is not installed: standard library only. The engine is a file named on the
command line, with

    open_engine(threads, options) -> engine
    engine.describe() -> dict                                     facts for the report
    engine.prepare(key, n, k, format, matrices) -> dict           make matrices to rotate over; {"bytes": of one}
    engine.run(key, rows, calls) -> seconds                       time calls products, each with the next matrix
"""

import importlib.util
import json
import os
import sys
from typing import Any


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("engine", path)
    assert spec
    assert spec.loader
    module = sys.modules["engine"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    action = request.pop("do")
    if action == "run":
        return {"seconds": engine.run(**request)}
    result: dict[str, Any] = getattr(engine, action)(**request)
    return result


def main() -> None:
    # Libraries print to stdout, so replies go to a copy of it, and stdout is redirected to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    engine_file, threads, options = sys.argv[1:]
    engine = load(engine_file).open_engine(int(threads), json.loads(options))
    for line in sys.stdin:
        try:
            reply = answer(engine, json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
