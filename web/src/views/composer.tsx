// Where the user writes: the text, files that go with it, settings.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isForFile, readAttachment, readTransfer } from "../attachments";
import type { Chat, Draft } from "../chat";
import type { Attachment } from "../conversation";
import { countTokens, messageOf } from "../server";
import { settings } from "../settings";
import { strings } from "../strings";
import { Icon } from "./icons";
import { SettingsForm } from "./settings_form";

export function Composer({ chat }: { chat: Chat }) {
  const [isTarget, setTarget] = useState(false);
  const attach = async (files: Promise<Attachment[]>) => {
    try {
      const added = await files;
      patch(chat, { attachments: [...chat.draft.value.attachments, ...added] });
      chat.problem.value = "";
    } catch (error) {
      chat.problem.value = messageOf(error);
    }
  };
  const take = (event: Event, transfer: DataTransfer | null) => {
    setTarget(false);
    if (!transfer || !isForFile(transfer)) return;
    event.preventDefault();
    void attach(readTransfer(transfer));
  };
  return (
    <form
      id="composer"
      class={isTarget ? "target" : ""}
      onSubmit={(event) => {
        event.preventDefault();
        void chat.send();
      }}
      onPaste={(event) => take(event, event.clipboardData)}
      onDrop={(event) => take(event, event.dataTransfer)}
      onDragOver={(event) => {
        event.preventDefault();
        setTarget(true);
      }}
      onDragLeave={() => setTarget(false)}
    >
      <p id="problem" role="alert">
        {chat.problem.value}
      </p>
      {chat.draft.value.parent !== undefined && <EditNote chat={chat} />}
      <div class="box">
        <Files chat={chat} />
        <Question chat={chat} />
        <Buttons chat={chat} onFiles={(files) => void attach(Promise.all(files.map(readAttachment)))} />
      </div>
      <SettingsForm />
    </form>
  );
}

function patch(chat: Chat, changes: Partial<Draft>): void {
  chat.draft.value = { ...chat.draft.value, ...changes };
}

function EditNote({ chat }: { chat: Chat }) {
  return (
    <p class="dim note">
      {strings.editing}{" "}
      <button type="button" class="quiet" onClick={() => (chat.draft.value = { text: "", attachments: [] })}>
        {strings.cancel}
      </button>
    </p>
  );
}

function Question({ chat }: { chat: Chat }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const { text, parent } = chat.draft.value;
  useEffect(() => area.current?.focus(), [chat.open.value.id, parent]);
  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto"; // as high as the text, up to what the style sheet allows
    area.current.style.height = `${area.current.scrollHeight + 2}px`;
  }, [text]);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void chat.send();
  };
  return (
    <>
      <label class="hidden-label" for="question">
        {strings.yourMessage}
      </label>
      <textarea
        id="question"
        rows={1}
        placeholder={strings.hint}
        ref={area}
        value={text}
        onInput={(event) => patch(chat, { text: event.currentTarget.value })}
        onKeyDown={onKey}
      />
    </>
  );
}

function Buttons({ chat, onFiles }: { chat: Chat; onFiles: (files: File[]) => void }) {
  const picker = useRef<HTMLInputElement>(null);
  const chosen = (event: Event & { currentTarget: HTMLInputElement }) => {
    onFiles([...(event.currentTarget.files ?? [])]);
    event.currentTarget.value = "";
  };
  const { text, attachments } = chat.draft.value;
  return (
    <div class="buttons">
      <button
        type="button"
        id="attach"
        class="icon-button"
        aria-label={strings.attach}
        title={strings.attach}
        onClick={() => picker.current?.click()}
      >
        <Icon name="attach" />
      </button>
      <input type="file" id="files" multiple hidden aria-label={strings.attach} ref={picker} onChange={chosen} />
      {chat.isWriting.value ? (
        <button type="button" id="stop" class="round" aria-label={strings.stop} onClick={() => chat.stop()}>
          <Icon name="stop" />
        </button>
      ) : (
        <button
          type="submit"
          id="send"
          class="round primary"
          aria-label={strings.send}
          disabled={!text.trim() && !attachments.length}
        >
          <Icon name="send" />
        </button>
      )}
    </div>
  );
}

function Files({ chat }: { chat: Chat }) {
  const files = chat.draft.value.attachments;
  if (!files.length) return null;
  return (
    <ul class="files">
      {files.map((file, place) => (
        <li key={`${place} ${file.name}`}>
          <Icon name="file" /> {file.name} <TokenCount file={file} />
          <button
            type="button"
            class="icon-button"
            aria-label={strings.removeFile(file.name)}
            onClick={() => patch(chat, { attachments: files.filter((other) => other !== file) })}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** How much of the context the file takes, as the server counts. */
function TokenCount({ file }: { file: Attachment }) {
  const [size, setSize] = useState(strings.counting);
  const { model } = settings.value;
  useEffect(() => {
    let isCurrent = true;
    countTokens(model, file.text).then(
      (count) => isCurrent && setSize(strings.tokens(count)),
      () => isCurrent && setSize(strings.notCounted),
    );
    return () => (isCurrent = false);
  }, [file, model]);
  return <span class="dim">{size}</span>;
}
