// What the server pushes to operators, read while their view is shown.

import type { Overview } from "./api_types";
import { messageOf, Refusal, streamOverview } from "./server";
import { strings } from "./strings";

const RETRY_MS = 2000;
const STALL_MS = 15000; // an event comes every second; a connection that is silent for so long has broken unnoticed

export interface Watcher {
  show: (now: Overview) => void;
  /** What the operator should know about the connection; empty: it is well. */
  note: (text: string) => void;
}

/** Passes on every event until `signal` aborts. A stream that breaks off is opened again, since servers restart. */
export async function watchOverview(model: string, watcher: Watcher, signal: AbortSignal): Promise<void> {
  const isOver = () => signal.aborted;
  while (!isOver()) {
    try {
      for await (const { data } of unlessSilent(model, signal)) if (data) watcher.show(data);
      watcher.note(strings.streamEnded);
    } catch (error) {
      if (isOver()) return;
      const isForbidden = error instanceof Refusal && error.status === 403;
      watcher.note(isForbidden ? strings.needsAdmin : strings.tryingAgain(messageOf(error)));
      if (isForbidden) return;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

/** The events of one stream, which is given up when none comes for a while. */
async function* unlessSilent(model: string, signal: AbortSignal) {
  const silence = new AbortController();
  let timer = 0;
  const wait = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => silence.abort(new Error(strings.silent)), STALL_MS);
  };
  wait();
  try {
    for await (const event of streamOverview(model, AbortSignal.any([signal, silence.signal]))) {
      wait();
      yield event;
    }
  } finally {
    clearTimeout(timer);
  }
}
