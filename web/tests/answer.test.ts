import { afterEach, expect, test, vi } from "vitest";
import { receive, verdict } from "../src/answer";
import { strings } from "../src/strings";
import { answer } from "./messages";

afterEach(() => vi.unstubAllGlobals());

function inPieces(text: string): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream({
    start(stream) {
      for (const piece of text.match(/[^]{1,7}/g) ?? []) stream.enqueue(new TextEncoder().encode(piece));
      stream.close();
    },
  });
}

/** The server answers with these events, cut into pieces that ignore where events end. */
function serve(text: string): { headers: Record<string, string>[] } {
  const asked: { headers: Record<string, string>[] } = { headers: [] };
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("fetch", (_: string, options: { headers: Record<string, string> }) => {
    asked.headers.push(options.headers);
    return Promise.resolve(new Response(inPieces(text)));
  });
  return asked;
}

const event = (id: number, data: object) => `id: ${id}\ndata: ${JSON.stringify(data)}\n\n`;
const delta = (fields: object, more: object = {}) => ({ choices: [{ delta: fields, ...more }] });

test("an answer grows event by event", async () => {
  const logprobs = { content: [{ logprob: -0.5 }] };
  serve(
    `: alive\n\n${event(1, delta({ content: "He" }, { logprobs }))}${event(2, delta({ content: "llo" }))}data: [DONE]\n\n`,
  );
  const seen: string[] = [];
  const whole = await receive(answer(), null, ({ content }) => seen.push(content));
  expect(seen).toEqual(["He", "Hello"]);
  expect(whole).toMatchObject({ content: "Hello", logprobs: [-0.5], lastId: "2" });
});

test("it goes on after the last event", async () => {
  const asked = serve("data: [DONE]\n\n");
  await receive(answer({ lastId: "7" }), null, () => undefined);
  expect(asked.headers[0]).toMatchObject({ "Last-Event-ID": "7" });
});

test("a stream that breaks off is an error", async () => {
  serve(event(1, delta({ content: "He" })));
  await expect(receive(answer(), null, () => undefined)).rejects.toThrow(strings.endedEarly);
});

test("calls of tools come in pieces", async () => {
  const call = (piece: object) => delta({ tool_calls: [{ index: 0, function: piece }] });
  serve(
    `${event(1, call({ name: "look", arguments: "" }))}${event(2, call({ arguments: '{"a":1}' }))}data: [DONE]\n\n`,
  );
  const whole = await receive(answer(), null, () => undefined);
  expect(whole.toolCalls).toEqual([{ name: "look", arguments: '{"a":1}' }]);
});

test("answers are the same if every logprob has the same bits", () => {
  const first = answer({ content: "a", logprobs: [-1, -0] });
  expect(verdict(first, { ...first })).toBe(strings.sameBits(2));
  expect(verdict(first, { ...first, logprobs: [-1, 0] })).toBe(strings.differsFrom(2));
  expect(verdict(first, { ...first, logprobs: [-1, -0, -2] })).toBe(strings.differsFrom(3));
  expect(verdict(first, { ...first, content: "b" })).toBe(strings.textDiffers);
  expect(verdict(first, { ...first, fingerprint: "x" })).toBe(strings.otherModel);
});
