"""Chat templates in the style of the main families, and conversations to render with them."""

from typing import Any

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- set loop_messages = messages %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
<|start_header_id|>system<|end_header_id|>

Today: {{ date_string | default('26 Jul 2024') }}
{% if tools is not none %}{{ tools | tojson(indent=4) }}
{% endif %}{{ system_message }}<|eot_id|>
{%- for message in loop_messages %}
    {%- if 'tool_calls' in message and message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('One call at a time') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- message.content if message.content is string else message.content | tojson }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set said = messages[0]['content'] -%}
    {%- set first = (said if said is string else said[0]['text']) + '

' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}{%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- else -%}<start_of_image>{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""
MISTRAL = """{%- set ns = namespace(index=0) -%}
{{ bos_token }}
{%- for message in messages -%}
    {%- if message.role == 'user' and (tools is defined and tools) and loop.last -%}
        {{ '[AVAILABLE_TOOLS] [' }}
        {%- for tool in tools %}{{ tool | tojson }}{{ ', ' if not loop.last }}{% endfor -%}
        {{ '][/AVAILABLE_TOOLS]' }}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {%- if ns.index % 2 -%}{{ raise_exception('Roles must alternate') }}{%- endif -%}
        {%- set ns.index = ns.index + 1 -%}
        {{ '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' and message.content -%}
        {%- set ns.index = ns.index + 1 -%}
        {%- generation -%}{{ ' ' + message.content + eos_token }}{%- endgeneration -%}
    {%- elif message.role == 'system' -%}
        {%- continue -%}
    {%- else -%}
        {{ '[TOOL] ' ~ message | tojson(ensure_ascii=True) }}
    {%- endif -%}
{%- endfor -%}
"""
PHI3 = (
    "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + "
    "message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + "
    "'<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(system='', is_first=true) %}
{%- for message in messages %}{%- if message['role'] == 'system' %}
{%- if ns.is_first %}{% set ns.system = ns.system + message['content'] %}{% set ns.is_first = false %}
{%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none %}
{%- set content = message['content'] %}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{%- endif %}
{{- '<|Assistant|>' + content + eos_token }}{%- endif %}
{%- if message['role'] == 'tool' %}{{ '<|tool_output|>' + message['content'] }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|Assistant|>' }}{%- endif %}
"""
FAMILIES = {
    "chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "mistral": MISTRAL, "phi3": PHI3, "deepseek": DEEPSEEK,
}  # fmt: skip
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city <today> & 'tomorrow', ühm",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]


def _said(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


_CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": _said(("user", "Hello")),
    "system": _said(("system", " Be brief.\n"), ("user", "Hello  ")),
    "turns": _said(("user", "Hello"), ("assistant", "Hi! <think>x</think> y"), ("user", "{{ 7 * 7 }} {% raw %}")),
    "ends with the assistant": _said(("system", "S"), ("user", "  Q\n"), ("assistant", "An answer that ")),
    "odd text": _said(("user", "🙂 \ufeff\u2028 <|im_end|> </s> 'quotes' \"and\" \\n & <b>\x00")),
    "two users": _said(("user", "a"), ("user", "b")),
    "empty": _said(("user", "")),
    "call": [
        *_said(("user", "Weather?")),
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "name": "weather", "content": '{"celsius": 21}'},
    ],
    "two calls": [*_said(("user", "?")), {"role": "assistant", "content": None, "tool_calls": [_CALL, _CALL]}],
    "thinking": [
        *_said(("user", "?")),
        {"role": "assistant", "content": "!", "reasoning_content": "hm"},
        *_said(("user", "?")),
    ],
}
