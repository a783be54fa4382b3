"""The parser of tool calls, in the form that a row of call_forms.py describes.

It reads text as it comes: arguments are passed on as JSON as soon as they are certain. A grammar holds every call to
its form and to its tool's schema, so parsing cannot fail; only an answer that was cut off for length ends inside a
call.
"""

import re
from collections.abc import Collection, Generator, Sequence

from surefoot.server.answer.call_forms import HERMES, CallForm, split
from surefoot.server.answer.call_grammar import CallableTool
from surefoot.server.answer.call_heads import FENCE, CallHead, HeadFinder, Style
from surefoot.server.answer.call_values import ArgumentSlots, Slot, as_json, members_of
from surefoot.server.answer.parsing import LineBreaks, MessageDelta

Reading = Generator[None, None, None]  # goes on where more text has come
ReadingText = Generator[None, None, str]
_NAME = re.compile(r"[a-zA-Z0-9_.:-]*")
_SPACES = " \n\t"
_ANY_SPACES = re.compile(rf"[{_SPACES}]*")
_OPENINGS = {"object": "{", "array": "["}


class JsonScanner:
    """Finds the end of a JSON object, array or string."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = False

    def feed(self, text: str) -> int | None:
        """The index after the value, if its end is in this text."""
        for place, character in enumerate(text):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
            if self._depth <= 0 and not self._in_string and character in '}]"':
                return place + 1
        return None


class CallParser:
    """Splits one answer into content and calls.

    name: prefix of the calls' ids. plain: tools whose calls may come in plain JSON. tools: for the types of arguments.
    """

    def __init__(
        self,
        name: str,
        plain: Sequence[str] = (),
        form: CallForm = HERMES,
        tools: Sequence[CallableTool] = (),
    ) -> None:
        self._name = name
        self._form = form
        self._members = {tool.name: members_of(tool.schema) for tool in tools} if form.argument else {}
        self._finder = HeadFinder(plain, form.opening)
        self._in_content = True
        self._breaks = LineBreaks()  # after a call
        self._text = ""  # that is not yet read
        self._delta = MessageDelta()
        self.num_calls = 0
        self._reading = self._read()
        next(self._reading)

    def feed(self, text: str) -> MessageDelta:
        self._text += text
        next(self._reading)
        delta, self._delta = self._delta, MessageDelta()
        return delta

    def finish(self) -> MessageDelta:
        """An answer that was cut off may end inside a call."""
        return MessageDelta(self._breaks.drop(self._finder.finish())) if self._in_content else MessageDelta()

    def _read(self) -> Reading:
        while True:
            head = yield from self._content()
            self._in_content = False
            yield from self._block() if head.style is Style.TAGGED else self._plain_call(head)
            self._in_content = self._breaks.follow = True

    def _content(self) -> Generator[None, None, CallHead]:
        while True:
            before, head, self._text = self._finder.feed(self._text)
            if before := self._breaks.drop(before):
                self._delta += MessageDelta(before)
            if head is not None:
                return head
            yield

    # ---- calls ----

    def _block(self) -> Reading:
        """A call, or a block of several, after its opening."""
        form = self._form
        before, after = form.around_calls
        if not before:
            yield from self._call(form.call.removeprefix(form.opening))
            return
        yield from self._skip(before.removeprefix(form.opening))
        while True:
            yield from self._call(form.call)
            yield from self._spaces()
            if (yield from self._which([_first(after)])) is not None:
                yield from self._skip(after)
                return
            yield from self._skip(form.between)

    def _call(self, text: str) -> Reading:
        (*literals, rest, after), (*places, _) = split(text)  # the arguments come last
        words = {}
        for literal, place in zip(literals, places, strict=True):
            yield from self._skip(literal)
            words[place] = yield from self._run(_NAME)
        self._begin(words["name"], words.get("id"))
        yield from self._skip(rest)
        if self._form.argument:
            yield from self._pairs(self._members.get(words["name"], ANY_MEMBERS), _first(after))
        else:
            yield from self._json()
        yield from self._skip(after)

    def _plain_call(self, head: CallHead) -> Reading:
        self._begin(head.name)
        yield from self._json()
        for _ in range(head.num_braces):
            yield from self._skip("}")
        if head.style is Style.FENCED:
            yield from self._until(FENCE)

    def _begin(self, name: str, given: str | None = None) -> None:
        index, self.num_calls = self.num_calls, self.num_calls + 1
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": given or f"{self._name}{index}", "type": "function", "function": function}
        self._delta += MessageDelta(tool_calls=(call,))

    def _put(self, arguments: str) -> None:
        if arguments:
            more = {"index": self.num_calls - 1, "function": {"arguments": arguments}}
            self._delta += MessageDelta(tool_calls=(more,))

    # ---- arguments ----

    def _pairs(self, members: ArgumentSlots, end: str) -> Reading:
        """An object, whose pairs end before `end`."""
        form, is_first = self._form, True
        before, _, rest = form.around_value[0].partition("$key")
        middle, has_kind, rest = rest.partition("$is_string")
        self._put("{")
        while True:
            yield from self._spaces()
            if (yield from self._which([end])) is not None:
                break
            yield from self._skip(("" if is_first else form.between_arguments) + before)
            key = yield from self._until(_first(middle))
            yield from self._skip(middle.removeprefix(_first(middle)))
            kind = (yield from self._which(["true", "false"])) if has_kind else None
            yield from self._skip((kind or "") + rest)
            self._put(("" if is_first else ", ") + f"{as_json(key)}: ")
            is_first = False
            yield from self._value(members.slot(key), kind, end)
        self._put("}")

    def _value(self, slot: Slot, kind: str | None, end: str) -> Reading:
        """kind: whether it is marked as a string."""
        form, after = self._form, self._form.around_value[1]
        yield from self._need(1)
        is_container = kind != "true" and any(
            self._text.startswith(mark) and name in slot.types for name, mark in _OPENINGS.items()
        )
        if form.quote:
            yield from self._quoted(slot, end)
        elif is_container:
            yield from self._json()
            yield from self._skip(after)
        else:
            yield from self._unquoted(slot, kind)
            yield from self._skip(after.partition(form.tag)[2])

    def _unquoted(self, slot: Slot, kind: str | None) -> Reading:
        form = self._form
        dropped = "\n" if form.around_value[1].startswith("\n") else ""
        if kind == "true" or (kind is None and slot.types == {"string"} and slot.choices is None):
            yield from self._string(form.tag, dropped)
            return
        text = (yield from self._until(form.tag)).removesuffix(dropped)
        self._put(slot.read(text, form.words, form.write_value))

    def _string(self, tag: str, dropped: str = "") -> Reading:
        """Passes a string on, up to the tag. dropped: what before the tag is no part of it."""
        self._put('"')
        while (place := self._text.find(tag)) < 0:
            certain = max(0, len(self._text) - len(dropped + tag))
            self._put(as_json(self._text[:certain])[1:-1])
            self._text = self._text[certain:]
            yield
        self._put(as_json(self._text[:place].removesuffix(dropped))[1:-1] + '"')
        self._text = self._text[place + len(tag) :]

    def _quoted(self, slot: Slot, end: str) -> Reading:
        form = self._form
        if (yield from self._which([form.quote])) is not None:
            yield from self._skip(form.quote)
            yield from self._string(form.quote)
        elif form.nested and self._text[0] in "{[":
            yield from self._nested(slot)
        elif self._text[0] in '{["':
            yield from self._json()
        else:
            text = yield from self._run(re.compile(rf"[^,{re.escape(end[0])}]*"))
            self._put(slot.read(text, form.words, form.write_value))

    def _nested(self, slot: Slot) -> Reading:
        """An object or an array in the form's own quotes, whose types show in the text."""
        opening, is_first = self._text[0], True
        self._text = self._text[1:]
        if opening == "{":
            yield from self._pairs(ANY_MEMBERS, "}")
            yield from self._skip("}")
            return
        self._put("[")
        while (yield from self._which(["]"])) is None:
            if not is_first:
                yield from self._skip(",")
                self._put(", ")
            yield from self._need(1)
            yield from self._quoted(ANY_SLOT, "]")
            is_first = False
        yield from self._skip("]")
        self._put("]")

    def _json(self) -> Reading:
        """A JSON value, as it is written."""
        yield from self._spaces()
        scanner = JsonScanner()
        while True:
            end = scanner.feed(self._text)
            piece = self._text[:end]
            self._put(piece)
            self._text = self._text[len(piece) :]
            if end is not None:
                return
            yield

    # ---- text ----

    def _need(self, count: int) -> Reading:
        while len(self._text) < count:
            yield

    def _spaces(self) -> Reading:
        yield from self._run(_ANY_SPACES)

    def _run(self, pattern: re.Pattern[str]) -> ReadingText:
        """The longest text that fits."""
        while True:
            match = pattern.match(self._text)
            assert match is not None
            if match.end() < len(self._text):
                self._text = self._text[match.end() :]
                return match[0]
            yield

    def _which(self, words: Collection[str]) -> Generator[None, None, str | None]:
        """The word that comes next; None if another text does."""
        while True:
            found = next((word for word in words if self._text.startswith(word)), None)
            if found is not None or not any(word.startswith(self._text) for word in words):
                return found
            yield

    def _skip(self, text: str) -> Reading:
        """Passes over this text. White space in it may be missing."""
        if text and text[0] not in _SPACES:
            yield from self._spaces()
        for part in re.findall(rf"[{_SPACES}]|[^{_SPACES}]+", text):
            if (yield from self._which([part])) is not None:
                self._text = self._text[len(part) :]

    def _until(self, tag: str) -> ReadingText:
        """The text before the tag, which is passed over."""
        while tag not in self._text:
            yield
        before, _, self._text = self._text.partition(tag)
        return before


ANY_SLOT = Slot({})
ANY_MEMBERS = ArgumentSlots({}, frozenset(), ANY_SLOT)


def _first(text: str) -> str:
    """The text up to its first white space."""
    return text.split(maxsplit=1)[0] if text.split() else ""
