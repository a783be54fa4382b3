"""Natural text for requests: several scripts, code and data, as users send them. Written for this project."""

ENGLISH = """The harbour master kept two notebooks. In the first he wrote down every ship that came in, her name, her \
cargo and the state of the tide; in the second, which he showed to nobody, he wrote what the sailors told him about \
the places they had seen. After thirty years the second was the thicker one. "A tide comes back," he used to say, \
"but nobody has ever told me the same story twice." When the new lighthouse was built, he was asked for a speech, and \
he read three pages from each."""

GERMAN = """Am Morgen lag Nebel über den Feldern, und die Straßenbahn kam, wie so oft, zehn Minuten zu spät. Frau \
Größler zählte die Gäste an der Haltestelle: sieben, ein Hund und ein Fahrrad ohne Besitzer. „Es wird schöner", sagte \
der Mann mit dem Hut, obwohl ihn niemand gefragt hatte."""

FRENCH = """L'atelier sentait le bois et la colle. À droite de la fenêtre, l'apprentie rabotait une planche de \
noyer ; à gauche, le maître accordait un violon dont personne ne voulait plus. « Écoute, dit-il, ce n'est pas la corde \
qui chante, c'est l'air qu'elle dérange. »"""

CHINESE = """山脚下有一个小图书馆,只有三间屋子。第一间放地图,第二间放信件,第三间什么也没有。管理员说:\
“第三间是留给还没有写出来的书的。”孩子们常常坐在那里,安静地听雨声。"""

RUSSIAN = """Поезд остановился посреди степи, и никто не знал почему. Проводница разносила чай, пассажиры смотрели \
в окно, а мальчик с верхней полки считал телеграфные столбы. «Сто двенадцать», — сказал он наконец, и поезд тронулся."""  # noqa: RUF001

ARABIC = """في السوق القديم كان بائع الساعات يعرف الوقت في كل مدينة إلا مدينته. سألته الفتاة: كم الساعة الآن؟ \
فابتسم وقال: هنا نعرف الوقت من رائحة الخبز."""

CODE = '''def merge(left: list[int], right: list[int]) -> list[int]:
    """Two sorted lists as one."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]


# Tests: merge([1, 4], [2, 3]) == [1, 2, 3, 4]
'''

DATA = """{"orders": [{"id": 1042, "customer": "Nordwind & Söhne", "total": 129.90, "paid": true, "items": [
  {"sku": "LMP-7", "count": 2, "note": null}, {"sku": "KBL-3m", "count": 1, "note": "blue 🔵, not grey"}]}]}
| id | total | paid |
|----|------:|------|
"""

TEXTS = {
    "English": ENGLISH, "code": CODE, "Chinese": CHINESE, "German": GERMAN, "data": DATA, "Russian": RUSSIAN,
    "French": FRENCH, "Arabic": ARABIC,
}  # fmt: skip

QUESTION = "Describe the ship that came in last night, as one JSON object with name, cargo and tons.\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "cargo": {"enum": ["timber", "salt", "letters"]},
        "tons": {"type": "integer", "minimum": 1, "maximum": 999},
        "crew": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
    },
    "required": ["name", "cargo", "tons"],
    "additionalProperties": False,
}
DATE = r"(Mon|Tues|Wednes)day, [0-3][0-9] (May|June) 19[0-9]{2}"
