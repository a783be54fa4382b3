// The models of the server: what they take, and to load or unload one.

import { useEffect, useState } from "preact/hooks";
import type { ManagedModel, ManagedModels } from "../api_types";
import { refreshModels } from "../models";
import { listManaged, loadModel, messageOf, unloadModel } from "../server";
import { strings } from "../strings";
import { bytes } from "../units";
import { Sure } from "./sure";
import { Table } from "./table";

const AGAIN_MS = 2000; // requests load and unload models too

export function ModelsTable() {
  const [{ data, limit_bytes: limit }, setModels] = useState<ManagedModels>({ data: [], limit_bytes: null });
  const [problem, setProblem] = useState("");
  const show = (reply: Promise<ManagedModels>) =>
    reply.then(setModels).catch((error: unknown) => setProblem(messageOf(error)));
  useEffect(() => {
    void show(listManaged());
    const timer = setInterval(() => void listManaged().then(setModels, () => undefined), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const change = (reply: Promise<ManagedModels>) => {
    setProblem("");
    void show(reply).then(refreshModels);
  };
  const { title, columns, none, only, limited } = strings.models;
  return (
    <>
      <Table
        id="models"
        label={title}
        columns={columns}
        rows={data.map((model) => row(model, limit !== null, change))}
        empty={none}
      />
      {data.length > 0 && <p class="dim">{limit === null ? only : limited(bytes(limit))}</p>}
      <p role="alert">{problem}</p>
    </>
  );
}

function row(model: ManagedModel, isChangeable: boolean, change: (reply: Promise<ManagedModels>) => void) {
  const { name, aliases, state, is_pinned: isPinned } = model;
  const { load, unload, reallyUnload, pinned } = strings.models;
  const button =
    state === "unloaded" ? (
      <button onClick={() => change(loadModel(name))}>{load}</button>
    ) : (
      state === "loaded" &&
      !isPinned && <Sure key={name} text={unload} sure={reallyUnload} onSure={() => change(unloadModel(name))} />
    );
  return [
    [name, ...aliases].join(", "),
    isPinned ? pinned(state) : state,
    model.num_running,
    bytes(model.file_bytes),
    bytes(model.memory_bytes),
    model.context,
    isChangeable && button,
  ];
}
