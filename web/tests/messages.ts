// Messages for tests.

import type { Answer, Question } from "../src/conversation";

export function question(fields: Partial<Question> = {}): Question {
  const place = { id: "q", conversation: "c", parent: null, order: 1 };
  return { ...place, role: "user", content: "Why?", attachments: [], ...fields };
}

export function answer(fields: Partial<Answer> = {}): Answer {
  const request = {
    model: "small",
    messages: [],
    logprobs: true,
    stream: true,
    stream_options: { include_usage: true },
  };
  return {
    id: "a",
    conversation: "c",
    parent: "q",
    order: 2,
    role: "assistant",
    content: "",
    reasoning: "",
    toolCalls: [],
    logprobs: [],
    state: "writing",
    writer: "tab",
    request: request as Answer["request"],
    lastId: null,
    ...fields,
  };
}
