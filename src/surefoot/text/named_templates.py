"""Finds the chat template that a user names: a Jinja file, or a common format, for models without a template."""

from pathlib import Path

from surefoot.text.chat import ChatTemplate, TemplateLimits
from surefoot.text.vocabulary import ChatTemplateError

FOLDER = Path(__file__).parent / "templates"
TEMPLATE_NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.jinja")))
TRIAL_MESSAGES = ({"role": "user", "content": "Hello"},)


def find_template(name: str | Path) -> str:
    """The template's text, from a format's name or a file's path. A file is tried once, so that an invalid template is
    reported before the model is loaded."""
    named = str(name) in TEMPLATE_NAMES
    source = _read(FOLDER / f"{name}.jinja" if named else Path(name).expanduser())
    if not named:
        trial = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
        try:
            trial.render(TRIAL_MESSAGES)
        finally:
            trial.close()
    return source


def _read(path: Path) -> str:
    if not path.is_file():
        names = ", ".join(TEMPLATE_NAMES)
        raise ChatTemplateError(f"{path}: no such chat template: give a file of Jinja, or one of {names}")
    if path.stat().st_size > 4 * TemplateLimits.template_characters:  # a character has four bytes at most
        raise ChatTemplateError(f"{path} is unreasonably long for a chat template: give another")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ChatTemplateError(f"{path} is not text in UTF-8: give a file of Jinja") from None
