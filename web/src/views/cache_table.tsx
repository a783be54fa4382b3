// What the prompt cache on disk has of each user.

import { useEffect, useState } from "preact/hooks";
import type { CachedUser } from "../api_types";
import { forgetUser, listCache, messageOf } from "../server";
import { settings } from "../settings";
import { strings } from "../strings";
import { bytes } from "../units";
import { Sure } from "./sure";
import { Table } from "./table";

const PUBLIC = "public";

export function CacheTable() {
  const [users, setUsers] = useState<CachedUser[]>([]);
  const [problem, setProblem] = useState("");
  const { model } = settings.value;
  const show = (before: Promise<unknown>) =>
    before
      .then(() => listCache(model))
      .then(setUsers)
      .catch((error: unknown) => setProblem(messageOf(error)));
  useEffect(() => void show(Promise.resolve()), [model]);
  const row = ({ user, hash, bytes: size }: CachedUser) => [
    user === null ? (hash === PUBLIC ? strings.cache.shared : strings.cache.unknown(hash)) : user || strings.everybody,
    bytes(size),
    user !== null && (
      <Sure
        key={hash}
        text={strings.cache.forget}
        sure={strings.cache.reallyForget}
        onSure={() => void show(forgetUser(model, user))}
      />
    ),
  ];
  const { title, columns, none } = strings.cache;
  return (
    <>
      <Table id="cache" label={title} columns={columns} rows={users.map(row)} empty={none} />
      <p role="alert">{problem}</p>
    </>
  );
}
