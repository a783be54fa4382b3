// The operator's view: figures, requests, users and slow requests, pushed by the server while the view is shown.

import { element } from "./dom.js";
import { streamOverview } from "./server.js";

const KEPT = 120; // readings in the chart
const RETRY_MS = 2000;
const STALL_MS = 15000; // an event comes every second; a connection that is silent for so long has broken unnoticed
const at = (id) => document.getElementById(id);
const speeds = []; // {speed, limit}
let watching = null; // an AbortController while the view is shown

export function showOperator() {
  if (watching) return;
  watching = new AbortController();
  watch(watching.signal);
}

export function hideOperator() {
  watching?.abort();
  watching = null;
}

/** The chosen model has changed. */
export function watchOtherModel() {
  if (!watching) return;
  hideOperator();
  speeds.length = 0;
  showOperator();
}

/** Draw every event. A stream that breaks off is opened again, since servers restart. */
async function watch(signal) {
  while (!signal.aborted) {
    try {
      for await (const { data } of unlessSilent(signal)) draw(data);
      at("server-note").textContent = "The server has ended the stream; trying again.";
    } catch (error) {
      if (signal.aborted) return;
      at("server-note").textContent = error.status === 403 ? "Figures cover all users: log in with an admin key." : `${error.message}; trying again.`;
      if (error.status === 403) return;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

/** The events of one stream, which is given up when none comes for a while. */
async function* unlessSilent(signal) {
  const silence = new AbortController();
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(new Error("The server is silent")), STALL_MS);
  };
  wait();
  try {
    for await (const event of streamOverview(at("model").value, AbortSignal.any([signal, silence.signal]))) {
      wait();
      yield event;
    }
  } finally {
    clearTimeout(timer);
  }
}

function draw(now) {
  at("server-note").textContent = now.is_alive ? "" : "The engine has not finished a step for a long time: it may be stuck.";
  showFigures(now);
  speeds.push({ speed: now.generated_per_second, limit: now.limit_per_second ?? 0 });
  speeds.splice(0, speeds.length - KEPT);
  showSpeeds(now.limit_per_second !== null);
  fill("requests", now.requests.map(openRow), "Nothing runs or waits.");
  fill("users", now.users.map(userRow), "No user has asked anything yet.");
  fill("slowest", now.slowest.map(slowRow), "No request has ended yet.");
}

// ---- figures ----

const number = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));
const milliseconds = (value) => (value === null ? "–" : `${value.toFixed(value < 100 ? 1 : 0)} ms`);
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);

function bytes(value) {
  const power = value > 0 ? Math.min(3, Math.floor(Math.log(value) / Math.log(1024))) : 0;
  return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

function showFigures(now) {
  const figures = {
    "Running": now.requests_running,
    "Waiting": now.requests_waiting,
    "Generated tokens a second": now.limit_per_second === null ? number(now.generated_per_second)
      : `${number(now.generated_per_second)} of ${number(now.limit_per_second, 0)}`,
    "Prompt tokens a second": number(now.prompt_per_second),
    "Step": `${milliseconds(now.step_ms)}, ${number(now.tokens_per_step)} tokens`,
    "Bandwidth for weights": percent(now.weights_bandwidth_use),
    "Until the first token": milliseconds(now.ttft_ms),
    "In the queue": milliseconds(now.queue_ms),
    "Between two tokens": milliseconds(now.gap_ms),
    "Right drafts": percent(now.drafts_accepted),
    "Memory": `${bytes(now.memory_bytes)} of ${bytes(now.memory_limit_bytes)}`,
    "KV memory in use": percent(now.kv_use),
    "KV memory with cached prefixes": percent(now.kv_cached),
    "Prompt tokens from the cache": percent(now.cache_hit_rate),
    "Cache on disk": now.disk_bytes === null ? "off" : `${bytes(now.disk_bytes)} of ${bytes(now.disk_max_bytes)}`,
    "Tokens a second from disk": number(now.disk_hit_tokens_per_second, 0),
    "Preemptions": now.preemptions,
    "Refused": now.refused,
    "Failed steps": now.engine_failures,
    "Held back by the CPU quota": seconds(now.throttled_s),
  };
  at("figures").replaceChildren(...Object.entries(figures).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function showSpeeds(hasLimit) {
  const top = Math.max(1, ...speeds.map(({ speed }) => speed), ...speeds.map(({ limit }) => limit));
  at("speed-top").textContent = `(top: ${number(top, 0)})`;
  const line = (kind, values) => {
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    drawn.setAttribute("class", kind);
    drawn.setAttribute("points", values.map((value, place) => `${(600 * place) / (KEPT - 1)},${115 - (110 * value) / top}`).join(" "));
    return drawn;
  };
  at("speed").replaceChildren(...(hasLimit ? [line("limit", speeds.map(({ limit }) => limit))] : []),
    line("speed", speeds.map(({ speed }) => speed)));
}

// ---- tables ----

function fill(id, rows, empty) {
  const width = at(id).tHead.rows[0].cells.length;
  at(id).tBodies[0].replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { colSpan: width }, empty))]));
}

const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
const userName = (user) => user || "everybody";
const STATES = { queue: "waits", prefill: "reads its prompt", decode: "answers" };
// A preempted request reads its prompt again, and what it has answered so far.
const prefillState = (request) => (request.generated_tokens ? "reads all again" : STATES.prefill);

function openRow({ user, route, phase, times, ...request }) {
  const isPrefill = phase === "prefill";
  const prompt = isPrefill ? `${request.computed_tokens} of ${request.prompt_tokens + request.generated_tokens}` : `${request.prompt_tokens}`;
  return row(userName(user), route, isPrefill ? prefillState(request) : STATES[phase], `${prompt} (${request.cached_tokens} cached)`, request.generated_tokens,
    seconds(request.seconds), phases(times));
}

const userRow = ({ user, ...share }) => row(userName(user), share.running, share.waiting, number(share.tokens_per_second),
  percent(share.share), percent(share.fair_share), share.tokens);

function slowRow({ user, route, times, ...request }) {
  const prompt = `${request.prompt_tokens} (${request.cached_tokens} cached)`;
  return row(new Date(1000 * request.ended_at).toLocaleTimeString(), userName(user), route, prompt, request.generated_tokens,
    seconds(request.seconds), phases(times), why(request, times));
}

/** A bar with a part for each phase; its label gives the figures to readers who do not see it. */
function phases({ queue_s, prefill_s, decode_s, other_s }) {
  const parts = { queue: queue_s, prefill: prefill_s, decode: decode_s, other: other_s };
  const label = Object.entries(parts).filter(([, time]) => time > 0).map(([name, time]) => `${name} ${seconds(time)}`).join(", ");
  const bar = element("div", { className: "phases", role: "img", ariaLabel: label, title: label });
  for (const [name, time] of Object.entries(parts)) {
    const part = element("span", { className: name });
    part.style.flexGrow = 1000 * time; // parts that sum to less than 1 would leave room; the page's policy allows scripts to set it
    bar.append(part);
  }
  return bar;
}

/** The phase that took longest, and what usually makes it long. */
function why(request, { queue_s, prefill_s, decode_s, other_s }) {
  const longest = Math.max(queue_s, prefill_s, decode_s, other_s);
  const share = percent(longest / Math.max(request.seconds, 1e-9));
  if (longest === other_s) return request.end === "whole" ? `${share} before the engine, or a slow reader` : `${request.end}: no times are known`;
  if (longest === queue_s) return `${share} queue: others were ahead`;
  if (longest === prefill_s) return `${share} prefill: ${request.prompt_tokens - request.cached_tokens} prompt tokens were computed`;
  return `${share} decode: ${number(request.generated_tokens / Math.max(decode_s, 1e-9))} tokens a second`;
}
