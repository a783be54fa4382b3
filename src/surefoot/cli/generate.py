"""`surefoot generate`: one prompt, its continuation, as it comes."""

import json
import sys
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.console import Console

from surefoot.api import Piece, RequestOutput
from surefoot.api.defaults import as_values
from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.interrupts import interrupts
from surefoot.cli.one_user import load_for_one, needs_template, open_for_one
from surefoot.cli.status import Speedometer
from surefoot.cli.wrapping import visible

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def generate(
    model: options.Model,
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads standard input.", show_default=False)],
    chat: Annotated[bool, typer.Option("--chat", help="Answer the prompt as a message, by the chat template.")] = False,
    system: options.System = None,
    max_tokens: options.MaxTokens = None,
    sampling: options.Sampling = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    stop: options.Stop = None,
    seed: options.Seed = 0,
    logprobs: Annotated[
        int | None, typer.Option(min=0, help="With --json: so many alternatives a token.", rich_help_panel="Sampling")
    ] = None,
    chat_template: options.ChatTemplate = None,
    float_format: options.Format = "w8",
    context: options.Context = None,
    threads: options.Threads = None,
    variant: options.Variant = None,
    speculate: options.Speculate = "auto",
    stats: options.Stats = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Continue a prompt (or answer it, with --chat), word by word as it comes.

    The same command gives the same text every time, on any machine and with any number of threads; another --seed
    gives another.
    """
    with told():
        opened = open_for_one(
            model, sampling, chat_template, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
        )  # fmt: skip
        params = replace(
            opened.sampling.params, stop=tuple(stop or ()), seed=seed, max_tokens=max_tokens, logprobs=logprobs
        )
        if chat or system:
            needs_template(opened, model)
        text = sys.stdin.read() if prompt == "-" else prompt
        llm = load_for_one(opened, float_format, context, threads, variant, speculate)
        wants_stats = sys.stderr.isatty() if stats is None else stats
        speedometer = Speedometer(llm) if wants_stats else None
        messages = [{"role": "system", "content": system}] if system else []
        given = [*messages, {"role": "user", "content": text}] if chat or system else text
        output = _read(llm.stream(given, params), show=not as_json)
        if as_json:
            facts = {**_facts(output, speedometer), "sampling": as_values(params)}
            typer.echo(json.dumps(facts, ensure_ascii=False))
        elif speedometer is not None:
            Console(stderr=True, highlight=False, soft_wrap=True).print(speedometer.line(output), style="dim")


def _read(pieces: Any, show: bool) -> RequestOutput:
    """The whole output, its text shown as it comes."""
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
        "timings": asdict(output.timings),
    }
    if answer.logprobs is not None:
        facts["logprobs"] = [{token: asdict(one) for token, one in values.items()} for values in answer.logprobs]
    if speedometer is not None:
        facts["of_bandwidth"] = speedometer.of_bandwidth(output)
        facts["read_bytes_per_second"] = speedometer.bytes_per_second
    return facts
