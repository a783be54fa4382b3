// Who may use the server: keys to add and to revoke.

import { useEffect, useState } from "preact/hooks";
import type { Key, NewKey } from "../api_types";
import { copyText } from "../clipboard";
import { addKey, listKeys, messageOf, revokeKey } from "../server";
import { strings } from "../strings";
import { Sure } from "./sure";
import { Table } from "./table";

export function KeysTable() {
  const [keys, setKeys] = useState<Key[]>([]);
  const [problem, setProblem] = useState("");
  const [made, setMade] = useState("");
  const done = (work: Promise<unknown>) =>
    work
      .then(listKeys)
      .then((latest) => {
        setKeys(latest);
        setProblem("");
      })
      .catch((error: unknown) => setProblem(messageOf(error)));
  useEffect(() => void done(Promise.resolve()), []);
  const add = (key: NewKey) => void done(addKey(key).then((added) => setMade(added.key)));
  const revoke = (key: Key) => void done(revokeKey(key.name));
  const texts = strings.keys;
  return (
    <div id="keys">
      <Table
        id="keys-table"
        label={texts.title}
        columns={texts.columns}
        rows={keys.map((key) => row(key, () => revoke(key)))}
        empty={texts.none}
      />
      <KeyForm onAdd={add} />
      {made && (
        <p id="new-key">
          {texts.made} <code>{made}</code> <button onClick={() => copyText(made)}>{strings.copy}</button>
        </p>
      )}
      <p role="alert">{problem}</p>
    </div>
  );
}

function row(key: Key, revoke: () => void) {
  const limit = (value: number | null) => value ?? strings.noLimit;
  return [
    key.user,
    <code>{key.name}</code>,
    key.admin ? strings.keys.yes : "",
    key.weight,
    limit(key.requests_per_minute),
    limit(key.tokens_per_minute),
    limit(key.max_context),
    <Sure key={key.name} text={strings.keys.revoke} sure={strings.keys.reallyRevoke} onSure={revoke} />,
  ];
}

function KeyForm({ onAdd }: { onAdd: (key: NewKey) => void }) {
  const texts = strings.keys;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const given = new FormData(form);
    const number = (name: string) => Number(given.get(name)) || null;
    onAdd({
      user: given.get("user") as string,
      admin: given.has("admin"),
      weight: number("weight") ?? 1,
      requests_per_minute: number("requests_per_minute"),
      tokens_per_minute: number("tokens_per_minute"),
    });
    form.reset();
  };
  const amount = (name: string, label: string, placeholder: string) => (
    <label>
      {label} <input name={name} type="number" min="0" step="any" placeholder={placeholder} />
    </label>
  );
  return (
    <form id="new-key-form" onSubmit={submit}>
      <label>
        {texts.user} <input name="user" required pattern="[A-Za-z0-9_.@\-]+" maxLength={64} autocomplete="off" />
      </label>
      {amount("weight", texts.weight, "1")}
      {amount("requests_per_minute", texts.requests, strings.noLimit)}
      {amount("tokens_per_minute", texts.tokens, strings.noLimit)}
      <label class="check">
        <input name="admin" type="checkbox" /> {texts.admin}
      </label>
      <button type="submit">{texts.add}</button>
    </form>
  );
}
