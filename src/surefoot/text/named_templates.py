"""Chat templates that somebody chose: a file of Jinja, or a common format by name, for models that bring none."""

from pathlib import Path

from surefoot.text.chat import ChatTemplate, TemplateLimits
from surefoot.text.errors import ChatTemplateError

FOLDER = Path(__file__).parent / "templates"
TEMPLATE_NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.jinja")))
TRIAL = ({"role": "user", "content": "Hello"},)


def find_template(given: str | Path) -> str:
    """The template's text, tried once: a wrong one is told before the model is loaded. A name means the format."""
    named = str(given) in TEMPLATE_NAMES
    source = _read(FOLDER / f"{given}.jinja" if named else Path(given).expanduser())
    if not named:
        trial = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
        try:
            trial.render(TRIAL)
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
