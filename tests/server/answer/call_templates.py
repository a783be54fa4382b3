"""Chat templates of our own that write calls in the forms of the main families."""

from surefoot.server.answer.channels import TOKENS

_BASE = (
    "{%% for tool in tools or [] %%}{{ tool.function.name }}\n{%% endfor %%}"
    "{%% for message in messages %%}<{{ message.role }}>{{ message.content }}"
    "{%% if message.tool_calls %%}%s{%% endif %%}</s>\n{%% endfor %%}"
    "{%% if add_generation_prompt %%}<assistant>{%% endif %%}"
)
_EACH = "{%% for call in message.tool_calls %%}{%% set f = call.function %%}%s{%% endfor %%}"
_BREAK = "{{ '\\n' if not loop.last }}"
_COMMA = "{{ ', ' if not loop.last }}"
_ARGUMENTS = "{%% for key, value in f.arguments | items %%}%s{%% endfor %%}"
_WRITTEN = "{{ value if value is string or value is boolean else value | tojson }}"
_JSON_WRITTEN = "{{ value if value is string else value | tojson }}"
_ONE = "{{ raise_exception('one call') if message.tool_calls | length > 1 }}"
_THOUGHT = (
    "{% for message in messages if message.thinking %}<|channel|>analysis<|message|>{{ message.thinking }}<|end|>"
    "{% endfor %}"
)
_NAMED = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'


def _template(calls: str) -> str:
    return _BASE % calls


def _each(call: str, arguments: str = "") -> str:
    return _EACH % call.replace("ARGUMENTS", _ARGUMENTS % arguments)


_QWEN = (
    "<tool_call>\n<function={{ f.name }}>\nARGUMENTS</function>\n</tool_call>",
    f"<parameter={{{{ key }}}}>\n{_WRITTEN}\n</parameter>\n",
)
_MANY_BEGIN, _MANY_END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"
_BEGIN, _SEPARATOR, _END = (f"<\uff5ctool\u2581{word}\uff5c>" for word in ("call\u2581begin", "sep", "call\u2581end"))
_GEMMA = """\
{%- macro write(value, is_inside=true) -%}
{%- if value is string -%}<|"|>{{ value }}<|"|>
{%- elif value is mapping -%}
{{ '{' if is_inside }}
{%- for key, inner in value | dictsort %}{{ key }}:{{ write(inner) }}{{ ',' if not loop.last }}{% endfor -%}
{{ '}' if is_inside }}
{%- elif value is iterable -%}
[{% for inner in value %}{{ write(inner) }}{{ ',' if not loop.last }}{% endfor %}]
{%- else -%}{{ value | tojson }}{%- endif -%}
{%- endmacro -%}
"""
_PYTHON = '{{ value | tojson if value is mapping else "\'" ~ value ~ "\'" if value is string else value }}'

# By the form that is to be found in them.
TEMPLATES = {
    "hermes": _template(_each(f"<tool_call>\n{_NAMED}\n</tool_call>{_BREAK}")),
    "qwen xml": _template(_each(_QWEN[0] + _BREAK, _QWEN[1])),
    "llama": _template(
        _ONE + _each('{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}')
    ),
    "mistral with ids": _template(
        "{% for call in message.tool_calls if call.id | length != 9 %}{{ raise_exception('nine') }}{% endfor %}"
        + _each("[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ call.id }}[ARGS]{{ f.arguments | tojson }}")
    ),
    "mistral list": _template(f"[TOOL_CALLS][{_each(_NAMED + _COMMA)}]"),
    "glm": _template(
        _each(
            f"<tool_call>{{{{ f.name }}}}\nARGUMENTS</tool_call>{_BREAK}",
            f"<arg_key>{{{{ key }}}}</arg_key>\n<arg_value>{_JSON_WRITTEN}</arg_value>\n",
        )
    ),
    "deepseek 3.1": _template(
        _MANY_BEGIN + _each(f"{_BEGIN}{{{{ f.name }}}}{_SEPARATOR}{{{{ f.arguments | tojson }}}}{_END}") + _MANY_END
    ),
    "deepseek xml": _template(
        "<\uff5cDSML\uff5cfunction_calls>\n"
        + _each(
            '<\uff5cDSML\uff5cinvoke name="{{ f.name }}">\nARGUMENTS</\uff5cDSML\uff5cinvoke>\n',
            '<\uff5cDSML\uff5cparameter name="{{ key }}" string="{{ (value is string) | tojson }}">'
            f"{_JSON_WRITTEN}</\uff5cDSML\uff5cparameter>\n",
        )
        + "</\uff5cDSML\uff5cfunction_calls>"
    ),
    "gemma": _GEMMA
    + _template(_each("<|tool_call>call:{{ f.name }}{{ '{' }}{{ write(f.arguments, false) }}}<tool_call|>")),
    "lfm": _template(
        "<|tool_call_start|>["
        + _each(f"{{{{ f.name }}}}(ARGUMENTS){_COMMA}", f"{{{{ key }}}}={_PYTHON}{_COMMA}")
        + "]<|tool_call_end|>"
    ),
    "harmony": _THOUGHT + _template(
        _ONE + _each(" to=functions.{{ f.name }}<|channel|>commentary json<|message|>{{ f.arguments | tojson }}")
    ),
    "granite": _template("").replace("{% for tool", "Tools are called with <|tool_call|>.\n{% for tool", 1),
}  # fmt: skip
# Texts that are control tokens in the vocabularies of such models.
CONTROL = {
    "mistral with ids": ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    "deepseek 3.1": (_MANY_BEGIN, _BEGIN, _SEPARATOR, _END, _MANY_END),
    "deepseek xml": ("\uff5cDSML\uff5c",),
    "gemma": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "lfm": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "granite": ("<|tool_call|>",),
    "harmony": (*TOKENS, "<|call|>", "<|return|>"),
}
