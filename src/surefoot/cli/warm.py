"""`surefoot warm`: computes documents and system prompts ahead, for a server to find on disk."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from surefoot.api.llm import LLM
from surefoot.api.opening import short_name
from surefoot.api.warming import compute_prompts, document_prompt, messages_prompt, read_conversations
from surefoot.cli import options
from surefoot.cli.agent_recorder import record
from surefoot.cli.coding_agents import RECORDED, find_agent
from surefoot.cli.errors import exit_on_error
from surefoot.cli.options import refuse_unused
from surefoot.cli.progress import loading, showing
from surefoot.cli.warm_agent import warm_server
from surefoot.formats import AUTO_FORMAT

OF_AGENT = {"model", "agent", "save", "url", "key"}


def warm(
    ctx: typer.Context,
    model: options.Model,
    text: Annotated[
        list[Path] | None, typer.Option(help="Document with which a user's message will begin. Can be repeated.")
    ] = None,
    messages: Annotated[
        list[Path] | None, typer.Option(help="JSON array of messages, such as a system message. Can be repeated.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help=f"Tools and rules of this installed coding agent ({', '.join(RECORDED)}). A running server computes "
            "them: MODEL is the model's name there."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="File to write the agent's request to, for `surefoot serve --public-prefix`. No server is asked."
        ),
    ] = None,
    url: options.ServerUrl = options.SERVER_URL,
    key: options.ServerKey = None,
    user: Annotated[str, typer.Option(help="User of the server who will ask ('': a server without keys).")] = "",
    max_context: options.Context = None,
    threads: options.Threads = None,
    variant: options.Variant = None,
    float_format: options.Format = AUTO_FORMAT,
    chat_template: options.ChatTemplate = None,
    packed_cache: options.Cache = options.AUTO,
    cache_dir: options.CacheDir = options.AUTO,
    cache_disk: options.CacheDisk = None,
    cache_key_file: options.CacheKeyFile = None,
) -> None:
    """Compute documents and system prompts ahead, so that questions about them start at once.

    For --text and --messages the server must not run: one process at a time uses the cache. For --agent it must.
    """
    if agent is not None:
        with exit_on_error(), showing("warming") as report:
            refuse_unused(ctx, dict.fromkeys(ctx.params.keys() - OF_AGENT, "is not for --agent: a server runs already"))
            recorded = record(find_agent(agent, RECORDED), str(model))
            if save is not None:
                save.write_text(json.dumps(asdict(recorded), ensure_ascii=False, indent=1), encoding="utf-8")
                return
            root = options.server_root(url)
            warmed = warm_server(root, key, str(model), recorded, report)
        typer.echo(f"{warmed.num_tokens} tokens of {agent}, {warmed.num_cached} of them known before")
        return
    if not text and not messages:
        raise typer.BadParameter("give --text FILE, --messages FILE or --agent NAME")
    with exit_on_error():
        refuse_unused(ctx, dict.fromkeys(("save", "url", "key"), "is for --agent"))
        prompts = options.prompt_cache(cache_dir, cache_disk, cache_key_file, short_name(model))
        if prompts is None:
            raise ValueError("--cache-dir none leaves nowhere to keep what is computed")
        with loading(model.name) as report:
            llm = LLM(
                str(model), max_context=max_context, threads=threads, variant=variant, float_format=float_format,
                chat_template=chat_template, packed_cache=options.cache(packed_cache), speculate="auto",
                prompt_cache=prompts, report=report,
            )  # fmt: skip
        if llm.disk_tier is None:
            raise ValueError(f"nothing can be kept: {llm.no_disk_reason}")
        tokens = [document_prompt(llm, file.read_text(encoding="utf-8")) for file in text or ()]
        conversations = [each for file in messages or () for each in read_conversations(file)]
        tokens += [messages_prompt(llm, conversation) for conversation in conversations]
        with showing("warming") as report:
            num_cached = compute_prompts(llm, tokens, user, report)
        llm.close()
    num_tokens = sum(map(len, tokens))
    typer.echo(f"{num_tokens} tokens in {len(tokens)} prompts, {num_cached} of them known before")
