from benchmarks.speculate.prompts import NUM_CHATS, chat_prompts, edit_prompts


def test_the_prompts() -> None:
    assert len(edit_prompts()) == len(set(edit_prompts())) == 16
    assert len(chat_prompts()) == len(set(chat_prompts())) == NUM_CHATS
    assert all(old in edit_prompts()[2 * number] for number, old in enumerate(("margin", "interval", "result")))
