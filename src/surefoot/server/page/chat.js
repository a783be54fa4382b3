// The chat view: sends the conversation, shows the answer as it comes, and checks that asking again gives the same bits.

import { Conversation } from "./conversation.js";
import { element } from "./dom.js";
import { markdown } from "./markdown.js";
import { streamChat } from "./server.js";

const at = (id) => document.getElementById(id);
const conversation = new Conversation();
let running = null; // an AbortController while an answer is being written
let answered = () => {}; // called after each answer

export function startChat(onAnswer) {
  answered = onAnswer;
  at("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  at("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  at("stop").addEventListener("click", () => running?.abort());
  at("new").addEventListener("click", () => {
    running?.abort();
    conversation.clear();
    draw();
    at("question").focus();
  });
  draw();
}

/** Go on with an answer that was being written when the page was left. */
export function resume() {
  const message = conversation.messages[conversation.last];
  if (message?.role === "assistant" && message.state === "writing") write(conversation.last);
}

function send(text = at("question").value.trim(), parent = conversation.last) {
  if (!text || running) return;
  at("question").value = "";
  answer(conversation.add({ role: "user", content: text }, parent));
}

function answer(parent) {
  const request = requestFor(parent);
  const message = { role: "assistant", content: "", reasoning: "", logprobs: [], state: "writing", request, lastId: null };
  write(conversation.add(message, parent));
}

function requestFor(end) {
  const system = at("system").value.trim();
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  const history = conversation.path(end).map((place) => conversation.messages[place]);
  return {
    model: at("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []),
      ...history.map(({ role, content }) => ({ role, content }))],
    temperature: number("temperature"), seed: number("seed"), max_tokens: number("max-tokens"),
    logprobs: true, stream: true, stream_options: { include_usage: true },
  };
}

/** Receive the answer, from its last event on. A broken connection is resumed: the server computes the same tokens. */
async function write(number) {
  const message = conversation.messages[number];
  running = new AbortController();
  problem("");
  draw();
  try {
    await receive(message, running.signal, () => drawMessage(number));
    message.state = "done";
  } catch (error) {
    message.state = running.signal.aborted ? "stopped" : "failed";
    if (message.state === "failed") problem(`${error.message}. "Go on" resumes the answer.`);
  }
  running = null;
  conversation.save();
  draw();
  at("question").focus();
  answered();
}

async function receive(message, signal, changed) {
  let saved = performance.now();
  for await (const { id, data } of streamChat(message.request, { lastId: message.lastId, signal })) {
    if (data === null) return;
    if (data.error) throw new Error(data.error.message);
    take(message, data);
    message.lastId = id ?? message.lastId;
    if (performance.now() - saved > 200) { // storage is slow; what is lost by a reload is received again
      conversation.save();
      saved = performance.now();
    }
    changed();
  }
  throw new Error("the connection ended early");
}

function take(message, data) {
  message.fingerprint = data.system_fingerprint ?? message.fingerprint;
  const choice = data.choices[0];
  message.content += choice?.delta?.content ?? "";
  message.reasoning += choice?.delta?.reasoning_content ?? "";
  for (const token of choice?.logprobs?.content ?? []) message.logprobs.push(token.logprob);
  if (data.usage) message.usage = data.usage;
}

/** Ask again with the values that the server used, and compare texts and logprobs, bit by bit. */
async function compare(number) {
  const message = conversation.messages[number];
  const again = { content: "", reasoning: "", logprobs: [], lastId: null, request: { ...message.request, ...message.usage?.sampling } };
  message.same = "asking again…";
  drawMessage(number);
  try {
    await receive(again, undefined, () => {});
    message.same = verdict(message, again);
  } catch (error) {
    message.same = `could not ask again: ${error.message}`;
  }
  conversation.save();
  drawMessage(number);
}

function verdict(first, second) {
  if (first.fingerprint !== second.fingerprint) return "the server now has another model or other settings";
  const place = first.logprobs.findIndex((logprob, token) => !Object.is(logprob, second.logprobs[token]));
  if (place >= 0 || first.logprobs.length !== second.logprobs.length) return `differs from token ${place + 1} on`;
  return first.content === second.content ? `same bits: ${first.logprobs.length} tokens and logprobs` : "the text differs";
}

function problem(text) {
  at("problem").textContent = text;
}

function draw() {
  at("stop").hidden = !running;
  at("send").disabled = Boolean(running);
  at("messages").replaceChildren(...conversation.path().map(makeMessage));
  at("messages").lastElementChild?.scrollIntoView({ block: "end" });
}

function drawMessage(number) {
  document.querySelector(`[data-number="${number}"]`)?.replaceWith(makeMessage(number));
}

function makeMessage(number) {
  const message = conversation.messages[number];
  const box = element("article", { className: `message ${message.role}` });
  box.dataset.number = number;
  const title = message.role === "user" ? "You" : message.request.model;
  box.append(element("h3", {}, title), ...reasoning(message), ...markdown(message.content), facts(number, message));
  return box;
}

function reasoning(message) {
  if (!message.reasoning) return [];
  return [element("details", {}, element("summary", {}, "Reasoning"), ...markdown(message.reasoning))];
}

function facts(number, message) {
  const line = element("div", { className: "facts" });
  const words = message.role === "assistant" ? describe(message) : [];
  line.append(...words.map((text) => element("span", {}, text)));
  if (!running) line.append(...branches(number), ...actions(number, message));
  return line;
}

function describe({ state, usage, same }) {
  const words = state === "done" ? [] : [{ writing: "writing…", stopped: "stopped", failed: "interrupted" }[state]];
  const times = usage?.timings_ms;
  if (times) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    const rate = usage.completion_tokens / Math.max(times.decode / 1000, 1e-9);
    words.push(`queue ${seconds(times.queue)}`, `prompt ${seconds(times.prefill)} (${usage.prompt_tokens} tokens, ${cached} cached)`,
      `answer ${seconds(times.decode)} (${usage.completion_tokens} tokens, ${rate.toFixed(1)} a second)`);
  }
  if (same) words.push(same);
  return words;
}

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

function branches(number) {
  const siblings = conversation.siblings(number);
  if (siblings.length < 2) return [];
  const place = siblings.indexOf(number);
  const go = (step) => () => {
    conversation.choose(siblings[place + step]);
    draw();
  };
  return [
    button("‹", go(-1), "Previous version", place === 0),
    element("span", {}, `${place + 1} of ${siblings.length}`),
    button("›", go(1), "Next version", place === siblings.length - 1),
  ];
}

function actions(number, message) {
  if (message.role === "user") return [button("Edit", () => edit(number))];
  if (message.state !== "done") return [button("Go on", () => write(number))];
  return [button("Same answer?", () => compare(number)), button("Ask again", () => answer(message.parent))];
}

function button(text, action, label = text, disabled = false) {
  const made = element("button", { type: "button", ariaLabel: label, disabled }, text);
  made.addEventListener("click", action);
  return made;
}

/** Put the message into the composer; sending it begins a branch beside the old one. */
function edit(number) {
  const { content, parent } = conversation.messages[number];
  conversation.last = parent;
  draw();
  at("question").value = content;
  at("question").focus();
}
