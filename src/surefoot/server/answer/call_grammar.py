"""The grammar of tool calls, from the row of their form (call_forms.py), as Lark rules for llguidance.

A special token of the vocabulary is matched by its id: no text stands for it. A string without quotes ends at the first
tag that may end it, so the tag cannot be in it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.sampling.grammar import json_rule, regex_rule
from surefoot.server.answer.call_forms import CallForm, sort_key, split
from surefoot.server.answer.call_heads import FENCE, Style, head_regex
from surefoot.server.answer.call_values import (
    NUMBER,
    TYPES,
    ArgumentSlots,
    Schema,
    Slot,
    TooComplex,
    alternatives,
    as_json,
    member,
    members_of,
    type_of,
)
from surefoot.server.answer.channels import CALL, FINAL
from surefoot.server.schemas.tools import NamedChoice, ToolChoice

# Line breaks and indentation, bounded: some models write white space for ever if they may.
LOOSE_STYLE = {"whitespace_flexible": True, "whitespace_pattern": r"(?:[ ]|\n[ \t]{0,64})?"}
ANY = r"(.|\n)"
KEY = r"/[A-Za-z_][A-Za-z0-9_.\-]{0,63}/"  # of an argument that no schema lists
STRINGS, CONTAINERS = frozenset({"string"}), frozenset({"object", "array"})
NUMBERS = frozenset({"integer", "number"})
QUOTE, UNQUOTED = "'", r"[^'\\]"
EMPTY = '""'


@dataclass(frozen=True)
class CallableTool:
    """A tool as the grammar needs it."""

    name: str
    schema: dict[str, Any]  # of its arguments


class Literals:
    """Writes texts for the grammar. special: ids of the vocabulary's special tokens, by their text."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        texts = sorted((text for text in special if text), key=len, reverse=True)
        self._tokens = re.compile("|".join(map(re.escape, texts))) if texts else None

    def __call__(self, text: str) -> str:
        """The text as a sequence of Lark symbols."""
        before, token, after = self.split(text)
        found = [as_json(before)] if before else []
        if token:
            found.append(self.token(token))
        return " ".join([*found, self(after)] if after else found)

    def split(self, text: str) -> tuple[str, str, str]:
        """The text before the first special token, the token, and the text after it."""
        match = self._tokens.search(text) if self._tokens is not None else None
        return (text[: match.start()], match[0], text[match.end() :]) if match else (text, "", "")

    def token(self, text: str) -> str:
        return f"<[{self._special[text]}]>"


def call_rules(
    form: CallForm,
    tools: Sequence[CallableTool],
    choice: ToolChoice,
    parallel: bool,
    plain: Sequence[CallableTool] = (),
    special: Mapping[str, int] | None = None,
) -> str:
    """Lark rules, the first of which is `answer`. plain: tools whose calls may come in plain JSON where the answer is
    free."""
    if isinstance(choice, NamedChoice):
        tools = [tool for tool in tools if tool.name == choice.function.name]
    rules = _Rules(form, Literals(special or {}))
    parallel = parallel and form.several
    several = parallel and choice == "required"
    answer = rules.free_answer(parallel, plain) if choice == "auto" else rules.call_answer(several)
    is_bare = choice == "auto" and not form.opening
    body = "" if is_bare else rules.body(tools, parallel if choice == "auto" else several)
    return "\n".join([*answer, body, *rules.lines()])


def text_rules(form: CallForm, special: Mapping[str, int]) -> str | None:
    """Lark rules of text in which no call begins; None where the form does not say how one begins."""
    if form.in_channels or not form.opening:
        return None
    _, token, _ = Literals(special).split(form.opening)  # text has no special tokens
    return f"answer: TEXT\nTEXT: /{ANY}*/" + ("" if token else f" & ~/{ANY}*{_regex(form.opening)}{ANY}*/")


MOST_STRINGS = 1 << 12  # alternatives of all arguments
MOST_CHARACTERS = 1 << 20  # of schemas and rules that a grammar is made of: each argument brings its definitions


class _Rules:
    """Collects rules; the same rule is written once. Raises TooComplex."""

    def __init__(self, form: CallForm, literal: Literals) -> None:
        self._form = form
        self._literal = literal
        self._names: dict[str, str] = {}  # of rules, by what stands after the name
        self._values: dict[str, str] = {}  # names of the rules of values, by their schemas
        self._lines: list[str] = []  # these rules
        self._num_left = MOST_CHARACTERS

    def lines(self) -> list[str]:
        return [*self._lines, *(f"{name}{text}" for text, name in self._names.items())]

    def _spend(self, text: str) -> str:
        self._num_left -= len(text)
        if self._num_left < 0:
            raise TooComplex
        return text

    def _rule(self, text: str, options: str = "") -> str:
        self._spend(text)
        return self._names.setdefault(f"{options}: {text}", f"r{len(self._names)}")

    def _term(self, text: str) -> str:
        return self._names.setdefault(f": {text}", f"T{len(self._names)}")

    # ---- answers ----

    def free_answer(self, parallel: bool, plain: Sequence[CallableTool]) -> list[str]:
        """Text with calls. Lazy: the first head of a call ends the text, so that no call hides inside of text."""
        opening, calls = self._form.opening, [f"plain_{number}" for number in range(len(plain))]
        if self._form.in_channels:
            return [f"answer: {self._literal(CALL + opening)} body | {self._literal(FINAL)} WORDS"]
        heads = []
        if opening:
            heads, calls = [f"head[lazy]: TEXT {as_json(opening)}"], ["head body", *calls]
            before, token, after = self._literal.split(opening)
            if token:
                text = self._term(f"/{ANY}*{_regex(before)}/") if before else "TEXT"
                calls = [_sequence(text, self._literal.token(token), self._literal(after), "body"), *calls]
        return [
            ("answer: call* tail" if parallel else "answer: call | tail") if calls else "answer: tail",
            *([f"call: {' | '.join(calls)}"] if calls else []),
            *heads,
            "tail: TEXT",
            r"TEXT: /(.|\n)*/",
            r"SPACE: /[ \n\t]{0,64}/",
            *(rule for number, tool in enumerate(plain) for rule in _plain_rules(number, tool)),
        ]

    def call_answer(self, parallel: bool) -> list[str]:
        form = self._form
        call = f"{self._literal((CALL if form.in_channels else '') + form.opening)} body"
        if parallel and form.block == "$calls":
            return [f"answer: {call} ({self._literal(form.between)} {call})*"]
        return [f"answer: {call}"]

    def body(self, tools: Sequence[CallableTool], parallel: bool) -> str:
        """A call, or a block of calls, after its opening."""
        form, literal = self._form, self._literal
        before, after = form.around_calls
        call = form.call if before else form.call.removeprefix(form.opening)
        calls = f"({' | '.join(self._call(call, tool) for tool in tools)})"
        if not before:
            return f"body: {calls}"
        more = f"({literal(form.between)} calls)*" if parallel else ""
        return f"calls: {calls}\nbody: {literal(before.removeprefix(form.opening))} calls {more} {literal(after)}"

    def _call(self, text: str, tool: CallableTool) -> str:
        literals, places = split(text.replace("$name", tool.name))
        parts = {"id": "/[a-zA-Z0-9]{9}/", "arguments": self._arguments(tool), "": ""}
        pairs = zip(literals, [*places, ""], strict=True)
        return self._rule(_sequence(*(part for text, place in pairs for part in (self._literal(text), parts[place]))))

    # ---- arguments ----

    def _arguments(self, tool: CallableTool) -> str:
        if not self._form.argument:
            return self._rule(json_rule(tool.schema))
        return self._pairs(members_of(tool.schema))

    def _pairs(self, members: ArgumentSlots) -> str:
        """In the schema's order, or in that of names."""
        slots = sorted(members.slots.items(), key=sort_key) if self._form.nested else members.slots.items()
        between = self._literal(self._form.between_arguments)
        other = self._pair(KEY, members.others) if members.others is not None else ""
        first = self._rule(f"({other} ({_sequence(between, other)})*)?" if other else EMPTY)
        later = self._rule(f"({_sequence(between, other)})*" if other else EMPTY)
        for key, slot in reversed([*slots]):
            pair, is_needed = self._pair(self._literal(key), slot), key in members.required
            first, later = (
                self._rule(f"{pair} {later}" + ("" if is_needed else f" | {first}")),
                self._rule(_sequence(between, pair, later) + ("" if is_needed else f" | {later}")),
            )
        return first

    def _pair(self, key: str, slot: Slot) -> str:
        head = self._form.around_value[0]
        if "$is_string" not in head:
            return self._rule(f"{self._key(head, key)} {self._value(slot)}")
        ways = [(word, self._value(slot, types)) for word, types in (("true", STRINGS), ("false", TYPES - STRINGS))]
        return self._rule(
            " | ".join(f"{self._key(head.replace('$is_string', word), key)} {value}" for word, value in ways if value)
        )

    def _key(self, head: str, key: str) -> str:
        before, _, after = head.partition("$key")
        return _sequence(self._literal(before), key, self._literal(after))

    # ---- values, and what ends them ----

    def _value(self, slot: Slot, types: frozenset[str] = TYPES) -> str:
        """The rule of a value of one of the types; empty if there is none. A schema may refer to itself."""
        key = self._spend(json.dumps([slot.schema, sorted(types)]))
        if key not in self._values:
            name = self._values[key] = f"v{len(self._values)}"
            ways = self._choices(slot, types) if slot.choices is not None else self._ways(slot, types)
            if not ways:
                self._values[key] = ""
            else:
                self._lines.append(f"{name}: {' | '.join(dict.fromkeys(ways))}")
        return self._values[key]

    def _choices(self, slot: Slot, types: frozenset[str]) -> list[str]:
        form = self._form
        end, tag = form.around_value[1], form.tag
        texts = [form.write_value(choice) for choice in slot.choices or () if type_of(choice) & types]
        if not form.quote and tag:
            texts = [text for text in texts if tag not in text]
        return [self._literal(text + end) for text in texts]

    def _ways(self, slot: Slot, types: frozenset[str]) -> list[str]:
        form = self._form
        types &= slot.types
        is_mixed = not form.quote and types > STRINGS
        strings = self._strings(slot, types if is_mixed else STRINGS) if types >= STRINGS else []
        # Without quotes, single values are told from strings when they are read.
        return [*strings, *self._others(slot, types & CONTAINERS if is_mixed else types - STRINGS)]

    def _others(self, slot: Slot, types: frozenset[str]) -> list[str]:
        form, end = self._form, self._literal(self._form.around_value[1])
        ways = [_sequence(as_json(word), end) for word in self._words(types)]
        parsed = types - {"boolean", "null"}
        if form.nested:
            ways += self._containers(slot, types)
            parsed -= CONTAINERS
        if (schema := slot.only(parsed)) is not None:
            ways.append(_sequence(self._rule(json_rule(schema)), end))
        return ways

    def _words(self, types: frozenset[str]) -> list[str]:
        kinds = ("boolean", "boolean", "null")
        return [word for word, kind in zip(self._form.words, kinds, strict=True) if kind in types]

    def _containers(self, slot: Slot, types: frozenset[str]) -> list[str]:
        """Objects and arrays in the form's own quotes."""
        objects, arrays = (slot.only(types & {kind}) for kind in ("object", "array"))
        ways = []
        for part in alternatives(objects) if objects is not None else ():
            ways.append(f'"{{" {self._pairs(members_of(part, slot.schema))} "}}"')
        for part in alternatives(arrays) if arrays is not None else ():
            item = self._value(member(slot.schema, part.get("items")))
            least, most = _bounds(part, "minItems", "maxItems")
            more = f'("," {item}){{{max(least - 1, 0)},{max(most - 1, 0) if isinstance(most, int) else ""}}}'
            items = f"{item} {more}" if least else f"({item} {more})?"
            ways.append(f'"[" {items if most != 0 else EMPTY} "]"')
        return ways

    def _strings(self, slot: Slot, types: frozenset[str]) -> list[str]:
        """types: with others than strings, single values of these types may come in their place."""
        form = self._form
        bodies = [body_of(part) for part in slot.strings]
        body = None if None in bodies else " | ".join(f"({body})" for body in bodies)
        if body is not None:
            body = " | ".join([body, *map(as_json, self._words(types)), *([f"/{NUMBER}/"] if types & NUMBERS else [])])
        firsts = "".join(mark for mark, kind in ((r"\{", "object"), (r"\[", "array")) if kind in types)
        if firsts:
            body = f"({body or f'/{ANY}*/'}) & /([^{firsts}]{ANY}*)?/"
        if not form.quote:
            after = self._literal(form.around_value[1].partition(form.tag)[2])
            return [_sequence(self._text(body, form.tag, form.around_value[1].startswith("\n")), after)]
        text = _sequence(self._literal(form.quote), self._text(body, form.quote))
        quoted = slot.only(STRINGS) if form.quote == "'" else None
        return [text] if quoted is None else [text, self._rule(json_rule(quoted))]

    def _text(self, body: str | None, tag: str, may_break: bool = False) -> str:
        """A string, and the tag that ends it. may_break: with a line's end between them, which a model may leave out
        where the string does not end in one."""
        before, token, after = self._literal.split(tag)
        end = _regex(before if token else tag)
        rest = _sequence(self._literal.token(token), self._literal(after)) if token else ""
        if body is None and not token:
            term = self._term(f"/{UNQUOTED if tag == QUOTE else ANY}*{end}/")
        else:
            # A special token's text, spelled with others, would end the string for the parser.
            kept = self._term(f"({body or f'/{ANY}*/'}) & ~/{ANY}*{_regex(tag)}{ANY}*/")
            kept = self._term(f"{kept} & /{UNQUOTED}*/") if tag == QUOTE else kept
            close = f" /{end}/" if end else ""
            ways = [f'{kept} "\\n"{close}', f"({kept} & ~/{ANY}*\\n/){close}"] if may_break else [f"{kept}{close}"]
            term = self._term(" | ".join(ways))
        return _sequence(term if token else self._rule(term, "[lazy]"), rest)


def _sequence(*symbols: str) -> str:
    return " ".join(symbol for symbol in symbols if symbol) or EMPTY


def _regex(text: str) -> str:
    return re.escape(text).replace("/", r"\/")


def body_of(schema: Schema) -> str | None:
    """The terminal of a string; None if any text fits."""
    bounds = _bounds(schema, "minLength", "maxLength")
    lengths = f"/{ANY}{{{bounds[0]},{bounds[1]}}}/" if bounds != (0, "") else None
    pattern = _pattern(schema["pattern"]) if isinstance(schema.get("pattern"), str) else None
    return " & ".join(filter(None, [lengths, pattern])) or None


def _bounds(schema: Schema, least: str, most: str) -> tuple[int, int | str]:
    """As they stand in braces behind what is repeated."""
    if any(not isinstance(schema.get(word, 0), int) or schema.get(word, 0) < 0 for word in (least, most)):
        raise TypeError(least)
    return schema.get(least, 0), schema.get(most, "")


def _pattern(pattern: str) -> str | None:
    """A pattern, which may stand anywhere in the text unless it says otherwise; None if it cannot be written so."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[begins : len(pattern) - ends]
    if (begins or ends) and _has_choice(inner):
        return None
    return regex_rule(f"{'' if begins else ANY + '*'}({inner}){'' if ends else ANY + '*'}")


def _has_choice(pattern: str) -> bool:
    """Whether it is a choice as a whole, not only inside of its groups."""
    level = 0
    for character in re.sub(r"\\.|\[[^\]]*\]", "", pattern):
        level += (character == "(") - (character == ")")
        if character == "|" and not level:
            return True
    return False


def unenforced(form: CallForm, schema: Schema) -> tuple[str, ...]:
    """Keywords of a tool's schema that the form's grammar does not hold a call to. Raises TooComplex."""
    if not form.argument:
        return ()
    members = members_of(schema)
    parts: list[Schema] = []
    for slot in members.slots.values():
        parts += slot.strings
        if len(parts) > MOST_STRINGS:
            raise TooComplex
    kept = [word for word in ("format",) if any(word in part for part in parts)]
    lost = [part for part in parts if isinstance(part.get("pattern"), str) and _pattern(part["pattern"]) is None]
    return (*members.unenforced, *kept, *(["pattern"] if lost else []))


def _plain_rules(number: int, tool: CallableTool) -> list[str]:
    """A call without tags: in a code block anywhere, or at the beginning of the text; its braces may be doubled."""
    forms, rules = [], [f"loose_{number}: %json {json.dumps({**tool.schema, 'x-guidance': LOOSE_STYLE})}"]
    for braces in (1, 2):
        name, rest = f"{number}_{braces}", f"SPACE loose_{number}" + ' SPACE "}"' * braces
        forms += [f'fenced_{name} {rest} SPACE "{FENCE}"', f"bare_{name} {rest}"]
        rules += [
            f"fenced_{name}[lazy]: /(.|\\n)*{head_regex(Style.FENCED, tool.name, braces)}/",
            f"bare_{name}[lazy]: /((.|\\n)*<\\/think>)?[ \\n\\t]*{head_regex(Style.BARE, tool.name, braces)}/",
        ]
    return [f"plain_{number}: {' | '.join(forms)}", *rules]
