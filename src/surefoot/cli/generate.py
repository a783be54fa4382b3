"""`surefoot generate`: one prompt and its continuation, streamed."""

import json
import sys
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.console import Console

from surefoot.api import Piece, RequestOutput
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.interrupts import interrupts
from surefoot.cli.one_user import OneUserOptions, Speedometer, needs_template, with_groups
from surefoot.cli.options import refuse_unused
from surefoot.cli.wrapping import visible

INTERRUPTED = 130  # exit status that shells expect after Ctrl-C


@with_groups
def generate(
    ctx: typer.Context,
    model: options.Model,
    prompt: Annotated[
        str, typer.Argument(help="Text to continue (-: read it from standard input).", show_default=False)
    ],
    shared: OneUserOptions,
    chat: Annotated[bool, typer.Option("--chat", help="Treat the prompt as a chat message and answer it.")] = False,
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of alternatives to report for each token, with --json.", rich_help_panel="Sampling"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Continue a prompt (or answer it, with --chat), word by word as it comes.

    The same command gives the same text every time, on any machine and with any number of threads. Another --seed gives
    another text.
    """
    with exit_on_error():
        if not (chat or shared.system):
            refuse_unused(ctx, {"chat_template": "needs --chat: other prompts are continued as they stand"})
        if not as_json:
            refuse_unused(ctx, {"logprobs": "needs --json, which prints them"})
        opened = shared.open(model)
        params = replace(shared.params(opened), logprobs=logprobs)
        if chat or shared.system:
            needs_template(opened, model)
        text = sys.stdin.read() if prompt == "-" else prompt
        llm = shared.load(opened)
        speedometer = shared.speedometer(llm, is_shown=sys.stderr.isatty())
        messages = [{"role": "system", "content": shared.system}] if shared.system else []
        question = [*messages, {"role": "user", "content": text}] if chat or shared.system else text
        output = _read(llm.stream(question, params), show=not as_json)
        if as_json:
            facts = {**_facts(output, speedometer), "sampling": params.settable}
            typer.echo(json.dumps(facts, ensure_ascii=False))
        elif speedometer is not None:
            Console(stderr=True, highlight=False, soft_wrap=True).print(speedometer.line(output), style="dim")


def _read(pieces: Any, show: bool) -> RequestOutput:
    """The whole output. show: write its text as it comes."""
    last: Piece | None = None
    with interrupts() as stopped:
        for last in pieces:
            if show:
                sys.stdout.write(visible(last.text) if sys.stdout.isatty() else last.text)
                sys.stdout.flush()
            if stopped():
                break
    if show:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if stopped():
        raise typer.Exit(INTERRUPTED)
    assert last is not None
    assert last.output is not None
    if (error := last.output.outputs[0].error) is not None:
        raise ValueError(error)
    return last.output


def _facts(output: RequestOutput, speedometer: Speedometer | None) -> dict[str, Any]:
    answer = output.outputs[0]
    facts: dict[str, Any] = {
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "seed": output.seed,
        "usage": asdict(output.usage),
        "timings": {name: value for name, value in asdict(output.timings).items() if name != "arrived"},
    }
    if answer.logprobs is not None:
        facts["logprobs"] = [
            {token: asdict(logprob) for token, logprob in values.items()} for values in answer.logprobs
        ]
    if speedometer is not None:
        facts["of_bandwidth"] = speedometer.of_bandwidth(output)
        facts["read_bytes_per_second"] = speedometer.bytes_per_second
    return facts
