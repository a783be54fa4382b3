// Receives answers, and compares two of them bit by bit.

import type { ChatChunk, ToolCall } from "./api_types";
import type { Answer } from "./conversation";
import { streamChat } from "./server";
import { strings } from "./strings";

/** The answer with the rest of its stream. A broken connection can be resumed: the server computes the same tokens.
 * changed: called with what is there after each event. */
export async function receive(
  answer: Answer,
  signal: AbortSignal | null,
  changed: (answer: Answer) => void,
): Promise<Answer> {
  let received = answer;
  for await (const { id, data } of streamChat(answer.request, answer.lastId, signal)) {
    if (data === null) return received;
    if (data.error) throw new Error(data.error.message);
    received = { ...extended(received, data), lastId: id ?? received.lastId };
    changed(received);
  }
  throw new Error(strings.endedEarly);
}

function extended(answer: Answer, chunk: ChatChunk): Answer {
  const choice = chunk.choices[0];
  const logprobs = choice?.logprobs?.content ?? [];
  return {
    ...answer,
    content: answer.content + (choice?.delta?.content ?? ""),
    reasoning: answer.reasoning + (choice?.delta?.reasoning_content ?? ""),
    toolCalls: withCalls(answer.toolCalls, choice?.delta?.tool_calls ?? []),
    logprobs: logprobs.length ? answer.logprobs.concat(logprobs.map(({ logprob }) => logprob)) : answer.logprobs,
    fingerprint: chunk.system_fingerprint ?? answer.fingerprint,
    usage: chunk.usage ?? answer.usage,
  };
}

type CallDelta = NonNullable<NonNullable<ChatChunk["choices"][number]["delta"]>["tool_calls"]>[number];

/** Names and arguments come in pieces, each with the number of its call. */
function withCalls(calls: ToolCall[], deltas: CallDelta[]): ToolCall[] {
  if (!deltas.length) return calls;
  const extendedCalls = [...calls];
  for (const { index, function: piece } of deltas) {
    const call = extendedCalls[index] ?? { name: "", arguments: "" };
    extendedCalls[index] = {
      name: call.name + (piece?.name ?? ""),
      arguments: call.arguments + (piece?.arguments ?? ""),
    };
  }
  return extendedCalls;
}

/** The same question once more, with the values that the server used. */
export function againOf(answer: Answer): Answer {
  const request = { ...answer.request, ...answer.usage?.sampling };
  return {
    ...answer,
    request,
    content: "",
    reasoning: "",
    toolCalls: [],
    logprobs: [],
    lastId: null,
    usage: undefined,
  };
}

/** What a reader is told about two answers. Logprobs must have the same bits. */
export function verdict(first: Answer, second: Answer): string {
  if (first.fingerprint !== second.fingerprint) return strings.otherModel;
  const place = first.logprobs.findIndex((logprob, token) => !Object.is(logprob, second.logprobs[token]));
  if (place >= 0) return strings.differsFrom(place + 1);
  if (second.logprobs.length > first.logprobs.length) return strings.differsFrom(first.logprobs.length + 1);
  return first.content === second.content ? strings.sameBits(first.logprobs.length) : strings.textDiffers;
}
