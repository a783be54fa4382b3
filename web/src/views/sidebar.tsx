// The conversations at the side: pinned ones first, then the newest.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Chat } from "../chat";
import type { Conversation } from "../conversation";
import { messageOf } from "../server";
import { strings } from "../strings";
import { download, fileName, fromJson, toJson, toMarkdown } from "../transfer";
import { Icon } from "./icons";

/** onHide: called when the list has done its work on a screen that it covers. */
export function Sidebar({ chat, onHide }: { chat: Chat; onHide: () => void }) {
  const [text, setText] = useState("");
  const found = useSearch(chat, text);
  const begin = () => {
    chat.new();
    onHide();
    document.getElementById("question")?.focus();
  };
  return (
    <aside id="conversations" aria-label={strings.conversations}>
      <button id="new" class="primary" onClick={begin}>
        <Icon name="plus" /> {strings.newConversation}
      </button>
      <input
        id="search"
        type="search"
        aria-label={strings.search}
        placeholder={strings.search}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <div class="lists">
        <Lists chat={chat} found={found} onHide={onHide} />
      </div>
      <Transfer chat={chat} />
    </aside>
  );
}

/** Ids of the conversations to show; null: all. */
function useSearch(chat: Chat, text: string): Set<string> | null {
  const [found, setFound] = useState<Set<string> | null>(null);
  const conversations = chat.conversations.value;
  useEffect(() => {
    let isCurrent = true;
    const search = async () => {
      const ids = text.trim() ? await chat.search(text.trim()) : null;
      if (isCurrent) setFound(ids);
    };
    void search();
    return () => (isCurrent = false);
  }, [text, conversations]);
  return found;
}

function Lists({ chat, found, onHide }: { chat: Chat; found: Set<string> | null; onHide: () => void }) {
  const shown = chat.conversations.value
    .filter(({ id }) => found?.has(id) ?? true)
    .sort((a, b) => b.changed - a.changed);
  if (!shown.length) return <p class="dim">{found ? strings.nothingFound : strings.noConversations}</p>;
  const list = (label: string, members: Conversation[]) =>
    members.length > 0 && (
      <section>
        <h2>{label}</h2>
        <ul>
          {members.map((conversation) => (
            <Entry key={conversation.id} chat={chat} conversation={conversation} onHide={onHide} />
          ))}
        </ul>
      </section>
    );
  return (
    <>
      {list(
        strings.pinned,
        shown.filter(({ isPinned }) => isPinned),
      )}
      {list(
        strings.recent,
        shown.filter(({ isPinned }) => !isPinned),
      )}
    </>
  );
}

interface EntryProps {
  chat: Chat;
  conversation: Conversation;
  onHide: () => void;
}

function Entry({ chat, conversation, onHide }: EntryProps) {
  const [isRenamed, setRenamed] = useState(false);
  const title = conversation.title || strings.untitled;
  const open = () => {
    void chat.show(conversation.id);
    onHide();
  };
  const rename = (text: string | null) => {
    setRenamed(false);
    if (text !== null) void chat.rename(conversation, text);
  };
  if (isRenamed) return <TitleField title={conversation.title} onDone={rename} />;
  return (
    <li>
      <button class="entry" aria-current={chat.open.value.id === conversation.id} title={title} onClick={open}>
        {title}
      </button>
      <Menu chat={chat} conversation={conversation} onRename={() => setRenamed(true)} />
    </li>
  );
}

/** onDone: called with the new title, or null if there is to be none. */
function TitleField({ title, onDone }: { title: string; onDone: (title: string | null) => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") onDone(field.current?.value ?? null);
    if (event.key === "Escape") onDone(null);
  };
  return (
    <li>
      <input
        aria-label={strings.newTitle}
        defaultValue={title}
        ref={field}
        onKeyDown={onKey}
        onBlur={(event) => onDone(event.currentTarget.value)}
      />
    </li>
  );
}

function Menu({ chat, conversation, onRename }: { chat: Chat; conversation: Conversation; onRename: () => void }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [isSure, setSure] = useState(false);
  const close = () => {
    if (menu.current) menu.current.open = false;
    setSure(false);
  };
  const item = (label: string, action: () => void) => (
    <button
      onClick={() => {
        close();
        action();
      }}
    >
      {label}
    </button>
  );
  const saveMarkdown = async () => {
    const messages = await chat.messagesOf(conversation.id);
    download(`${fileName(conversation.title)}.md`, toMarkdown({ conversation, messages }), "text/markdown");
  };
  const closeOutside = (event: FocusEvent) => {
    if (!menu.current?.contains(event.relatedTarget as Node | null)) close();
  };
  const title = conversation.title || strings.untitled;
  return (
    <details class="menu" ref={menu} onFocusOut={closeOutside} onKeyDown={(event) => event.key === "Escape" && close()}>
      <summary aria-label={strings.actionsFor(title)}>
        <Icon name={conversation.isPinned ? "pin" : "more"} />
      </summary>
      <div class="items">
        {item(strings.rename, onRename)}
        {item(conversation.isPinned ? strings.unpin : strings.pin, () => void chat.togglePin(conversation))}
        {item(strings.exportMarkdown, () => void saveMarkdown())}
        {isSure ? (
          item(strings.reallyDelete, () => void chat.remove(conversation))
        ) : (
          <button onClick={() => setSure(true)}>{strings.delete}</button>
        )}
      </div>
    </details>
  );
}

function Transfer({ chat }: { chat: Chat }) {
  const picker = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState("");
  const save = async () => download("conversations.json", toJson(await chat.all()), "application/json");
  const load = async (file: File | undefined) => {
    try {
      if (file) await chat.add(fromJson(await file.text()));
      setProblem("");
    } catch (error) {
      setProblem(strings.importProblem(messageOf(error)));
    }
  };
  const chosen = (event: Event & { currentTarget: HTMLInputElement }) => {
    void load(event.currentTarget.files?.[0]);
    event.currentTarget.value = "";
  };
  return (
    <div class="transfer">
      <button class="quiet" onClick={() => void save()}>
        {strings.exportAll}
      </button>
      <button class="quiet" onClick={() => picker.current?.click()}>
        {strings.import}
      </button>
      <input
        type="file"
        accept=".json,application/json"
        hidden
        aria-label={strings.import}
        ref={picker}
        onChange={chosen}
      />
      {problem && <p role="alert">{problem}</p>}
    </div>
  );
}
