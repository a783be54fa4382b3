// The chat: conversations at the side, messages, and the composer below them.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Chat } from "../chat";
import { strings } from "../strings";
import { Composer } from "./composer";
import { MessageView } from "./message_view";
import { Sidebar } from "./sidebar";

const SHOWN_AT_FIRST = 20; // messages; earlier ones are drawn as the reader comes near them
const SHOWN_MORE = 3; // at a time, so that no frame takes long
const NEAR_PX = 60; // this near to the end a reader follows an answer that grows

interface Props {
  chat: Chat;
  isHidden: boolean;
  isListShown: boolean;
  onHideList: () => void;
}

export function ChatView({ chat, isHidden, isListShown, onHideList }: Props) {
  useEffect(() => {
    const stopByKey = (event: KeyboardEvent) => {
      if (event.key === "Escape") chat.stop();
    };
    document.addEventListener("keydown", stopByKey);
    return () => document.removeEventListener("keydown", stopByKey);
  }, [chat]);
  return (
    <div id="chat" hidden={isHidden} class={isListShown ? "with-list" : ""}>
      <Sidebar chat={chat} onHide={onHideList} />
      <main>
        <MessageList key={chat.open.value.id} chat={chat} />
        <Composer chat={chat} />
      </main>
    </div>
  );
}

function MessageList({ chat }: { chat: Chat }) {
  const list = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const [numShown, setNumShown] = useState(SHOWN_AT_FIRST);
  const path = chat.path.value;
  const numEarlier = Math.max(0, path.length - numShown);
  const last = path.at(-1);

  useLayoutEffect(() => {
    if (last?.role === "assistant" && last.state === "writing") isFollowing.current = true;
  }, [last?.id]);
  useLayoutEffect(() => {
    if (isFollowing.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  });
  const scrolled = () => {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = list.current ?? {};
    isFollowing.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
  };

  return (
    <div id="messages" ref={list} aria-label={strings.conversation} role="log" tabIndex={0} onScroll={scrolled}>
      <div class="column">
        {numEarlier > 0 && <Earlier list={list.current} onReach={() => setNumShown(numShown + SHOWN_MORE)} />}
        {path.length === 0 && <Welcome />}
        {path.slice(numEarlier).map((message) => (
          <MessageView
            key={message.id}
            chat={chat}
            message={message}
            versions={chat.versions.value.get(message.id)?.join(" ") ?? ""}
          />
        ))}
      </div>
    </div>
  );
}

function Welcome() {
  return (
    <div class="welcome">
      <h2>{strings.welcome}</h2>
      <p>{strings.welcomeHint}</p>
    </div>
  );
}

/** Above the first message that is drawn. Draws more as soon as the reader comes near. */
function Earlier({ list, onReach }: { list: HTMLElement | null; onReach: () => void }) {
  const mark = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && onReach(), {
      root: list,
      rootMargin: "2000px 0px 0px 0px",
    });
    if (mark.current) watcher.observe(mark.current);
    return () => watcher.disconnect();
  });
  return (
    <button class="quiet" ref={mark} onClick={onReach}>
      {strings.earlier}
    </button>
  );
}
