"""Coding agents and their settings for a server. `surefoot agent` shows them, `surefoot warm` runs an agent with them.

Telemetry and updates are off wherever an agent has a setting for that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

CODEX = """model = "{model}"
model_provider = "surefoot"

[model_providers.surefoot]
name = "surefoot"
base_url = "{url}/v1"
env_key = "SUREFOOT_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""
OPENCODE = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "share": "disabled",
    "model": "surefoot/{model}",
    "small_model": "surefoot/{model}",
    "provider": {
        "surefoot": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "surefoot",
            "options": {"baseURL": "{url}/v1", "apiKey": "{key}"},
            "models": {"{model}": {"name": "{model}"}},
        }
    },
}
QWEN_CODE = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False},
    "security": {"auth": {"selectedType": "openai"}},
}
CONTINUE = """name: surefoot
version: 1.0.0
schema: v1
models:
  - name: surefoot
    provider: openai
    model: {model}
    apiBase: {url}/v1
    apiKey: {key}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
  - name: surefoot autocomplete
    provider: openai
    model: {model}
    apiBase: {url}/v1
    apiKey: {key}
    roles: [autocomplete]
"""
AIDER = """model: openai/{model}
openai-api-base: {url}/v1
openai-api-key: {key}
analytics-disable: true
check-update: false
"""


@dataclass(frozen=True)
class CodingAgent:
    """How an agent finds a server. In the texts, {url}, {model} and {key} stand for the server's."""

    program: str
    install: str  # the command that installs it
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # texts, by path in the home folder
    ask: tuple[str, ...] = ()  # words that make it answer one question and leave

    def filled(self, url: str, model: str, key: str) -> tuple[dict[str, str], dict[str, str]]:
        """The environment and the files for a server."""

        def fill(texts: Mapping[str, str]) -> dict[str, str]:
            return {
                name: text.replace("{url}", url).replace("{model}", model).replace("{key}", key)
                for name, text in texts.items()
            }

        return fill(self.environment), fill(self.files)


AGENTS: Mapping[str, CodingAgent] = {
    "claude-code": CodingAgent(
        "claude",
        "npm install -g @anthropic-ai/claude-code@2.1.197",
        {
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_AUTH_TOKEN": "{key}",
            "ANTHROPIC_MODEL": "{model}",
            "ANTHROPIC_SMALL_FAST_MODEL": "{model}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        ask=("-p",),
    ),
    "codex": CodingAgent(
        "codex",
        "npm install -g @openai/codex@0.169.0",
        {"SUREFOOT_KEY": "{key}"},
        {".codex/config.toml": CODEX},
        ("exec", "--skip-git-repo-check"),
    ),
    "opencode": CodingAgent(
        "opencode",
        "npm install -g opencode-ai@1.18.33",
        {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        {".config/opencode/opencode.json": json.dumps(OPENCODE, indent=2) + "\n"},
        ("run",),
    ),
    "qwen-code": CodingAgent(
        "qwen",
        "npm install -g @qwen-code/qwen-code@0.15.10",
        {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "{key}", "OPENAI_MODEL": "{model}"},
        {".qwen/settings.json": json.dumps(QWEN_CODE, indent=2) + "\n"},
        ("-p",),
    ),
    "continue": CodingAgent(
        "cn",
        "npm install -g @continuedev/cli@1.5",
        {"CONTINUE_TELEMETRY_ENABLED": "0"},
        {".continue/config.yaml": CONTINUE},
    ),
    "aider": CodingAgent("aider", "pip install aider-chat==0.86.2", files={".aider.conf.yml": AIDER}),
}
RECORDED = tuple(name for name, agent in AGENTS.items() if agent.ask)


def find_agent(name: str, names: tuple[str, ...] = tuple(AGENTS)) -> CodingAgent:
    """Raises ValueError."""
    if name not in names:
        raise ValueError(f"there is no agent {name!r}: take one of {', '.join(names)}")
    return AGENTS[name]
