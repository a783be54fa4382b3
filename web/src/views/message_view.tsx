// A message and what can be done with it.

import { memo } from "../memo";
import { useState } from "preact/hooks";
import type { ToolCall } from "../api_types";
import type { Chat } from "../chat";
import { copyText } from "../clipboard";
import type { Answer, Attachment, Message, Question } from "../conversation";
import { strings } from "../strings";
import { seconds } from "../units";
import { Icon } from "./icons";
import { Markdown } from "./markdown";

interface Props {
  chat: Chat;
  message: Message;
  /** Ids of all versions of this message, the oldest first, joined by spaces. */
  versions: string;
}

/** Drawn again only if the message or its versions have changed. */
export const MessageView = memo(function MessageView({ chat, message, versions }: Props) {
  return message.role === "user" ? (
    <article class="message user">
      <h3 class="hidden-label">{strings.you}</h3>
      <Attachments files={message.attachments} />
      {message.content && <Markdown text={message.content} isComplete={true} />}
      <div class="actions">
        <Versions chat={chat} message={message} versions={versions} />
        <QuestionActions chat={chat} question={message} />
      </div>
    </article>
  ) : (
    <AnswerView chat={chat} answer={message} versions={versions} />
  );
});

function AnswerView({ chat, answer, versions }: { chat: Chat; answer: Answer; versions: string }) {
  const [isDetailed, setDetailed] = useState(false);
  const isRunning = chat.running.value.has(answer.id);
  return (
    <article class="message assistant" aria-busy={isRunning}>
      <h3>{answer.request.model}</h3>
      {answer.reasoning && <Reasoning text={answer.reasoning} isComplete={!isRunning || answer.content !== ""} />}
      <Markdown text={answer.content} isComplete={!isRunning} />
      {answer.toolCalls.map((call, place) => (
        <ToolCard key={place} call={call} />
      ))}
      <div class="actions">
        {answer.state !== "done" && <span role="status">{strings.states[answer.state]}</span>}
        <Versions chat={chat} message={answer} versions={versions} />
        {!isRunning && (
          <AnswerActions
            chat={chat}
            answer={answer}
            isDetailed={isDetailed}
            onDetails={() => setDetailed(!isDetailed)}
          />
        )}
        {answer.same && (
          <span class="same" role="status">
            {answer.same}
          </span>
        )}
      </div>
      {isDetailed && <p class="details">{describe(answer).join(" · ")}</p>}
    </article>
  );
}

interface ActionProps {
  chat: Chat;
  answer: Answer;
  isDetailed: boolean;
  onDetails: () => void;
}

function AnswerActions({ chat, answer, isDetailed, onDetails }: ActionProps) {
  return (
    <>
      {answer.state !== "done" && <button onClick={() => void chat.goOn(answer)}>{strings.goOn}</button>}
      <CopyButton text={answer.content} />
      {answer.state === "done" && (
        <>
          <button onClick={() => void chat.askAgain(answer)} disabled={chat.isWriting.value}>
            {strings.askAgain}
          </button>
          <button onClick={() => void chat.compare(answer)}>{strings.sameAnswer}</button>
        </>
      )}
      {answer.usage && (
        <button aria-expanded={isDetailed} onClick={onDetails}>
          {strings.details}
        </button>
      )}
    </>
  );
}

function QuestionActions({ chat, question }: { chat: Chat; question: Question }) {
  if (chat.isWriting.value) return null;
  return (
    <>
      <CopyButton text={question.content} />
      <button onClick={() => chat.edit(question)}>{strings.edit}</button>
    </>
  );
}

function CopyButton({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => {
    copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return <button onClick={copy}>{isCopied ? strings.copied : strings.copyMessage}</button>;
}

function Versions({ chat, message, versions }: Props) {
  const ids = versions.split(" ");
  if (ids.length < 2) return null;
  const place = ids.indexOf(message.id);
  const step = (name: "previous" | "next", to: number, label: string) => (
    <button
      class="icon-button"
      aria-label={label}
      disabled={ids[to] === undefined}
      onClick={() => void chat.choose(ids[to] ?? message.id)}
    >
      <Icon name={name} />
    </button>
  );
  return (
    <span class="versions">
      {step("previous", place - 1, strings.previousVersion)}
      {strings.version(place + 1, ids.length)}
      {step("next", place + 1, strings.nextVersion)}
    </span>
  );
}

function Attachments({ files }: { files: Attachment[] }) {
  return files.map((file) => (
    <details class="card" key={file.name}>
      <summary>
        <Icon name="file" /> {file.name}
      </summary>
      <pre tabIndex={0}>{file.text}</pre>
    </details>
  ));
}

function Reasoning({ text, isComplete }: { text: string; isComplete: boolean }) {
  return (
    <details class="card reasoning">
      <summary>{strings.reasoning}</summary>
      <Markdown text={text} isComplete={isComplete} />
    </details>
  );
}

function ToolCard({ call }: { call: ToolCall }) {
  return (
    <details class="card" open>
      <summary>
        <Icon name="tool" /> {strings.toolCall(call.name)}
      </summary>
      <pre tabIndex={0} aria-label={strings.arguments}>
        {pretty(call.arguments)}
      </pre>
    </details>
  );
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // it is still being written
  }
}

function describe({ usage }: Answer): string[] {
  const times = usage?.timings_ms;
  if (!times) return [];
  const rate = usage.completion_tokens / Math.max(times.decode / 1000, 1e-9);
  return [
    strings.queueTime(seconds(times.queue / 1000)),
    strings.promptTime(
      seconds(times.prefill / 1000),
      usage.prompt_tokens,
      usage.prompt_tokens_details?.cached_tokens ?? 0,
    ),
    strings.answerTime(seconds(times.decode / 1000), usage.completion_tokens, rate.toFixed(1)),
  ];
}
