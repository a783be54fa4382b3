// The conversations, the one that is open, and the answers that are being written.

import { computed, signal } from "@preact/signals";
import type { ChatMessage, ChatRequest } from "./api_types";
import { againOf, receive, verdict } from "./answer";
import {
  contentOf,
  newConversation,
  newId,
  newestEnd,
  nextOrder,
  pathTo,
  titleOf,
  versionsOf,
  type Answer,
  type Attachment,
  type Conversation,
  type Message,
  type Messages,
  type Question,
} from "./conversation";
import type { Change, Library, Saved } from "./library";
import { messageOf } from "./server";
import { requestFields, settings } from "./settings";
import { strings } from "./strings";

const OPEN = "surefoot-open"; // the conversation that this tab shows, so that a reload finds it again
const TAB = "surefoot-tab";
const SHOW_MS = 40; // an answer that grows is drawn so often
const SAVE_MS = 300; // and kept so often: what a reload loses is received again

/** A text in the composer. parent: what it will follow; undefined: the end of the conversation. */
export interface Draft {
  text: string;
  attachments: Attachment[];
  parent?: string | null;
}

const EMPTY: Draft = { text: "", attachments: [] };

export class Chat {
  readonly conversations = signal<Conversation[]>([]);
  readonly open = signal<Conversation>(newConversation());
  readonly messages = signal<Messages>(new Map());
  readonly draft = signal<Draft>(EMPTY);
  readonly problem = signal("");
  /** Answers that this tab receives, by id. */
  readonly running = signal<ReadonlyMap<string, AbortController>>(new Map());
  readonly path = computed(() => pathTo(this.messages.value, this.open.value.last));
  readonly versions = computed(() => versionsOf(this.messages.value));
  readonly isWriting = computed(() => [...this.running.value.keys()].some((id) => this.messages.value.has(id)));
  private readonly library: Library;
  private readonly answered: () => void;
  private readonly tab: string;
  private isLeaving = false;

  /** answered: called after each answer. */
  constructor(library: Library, answered: () => void) {
    this.library = library;
    this.answered = answered;
    this.tab = sessionStorage.getItem(TAB) ?? newId();
    sessionStorage.setItem(TAB, this.tab);
    library.onChange((change) => void this.follow(change));
    addEventListener("pagehide", () => (this.isLeaving = true)); // a stream that breaks then has not failed
    addEventListener("pageshow", () => (this.isLeaving = false));
  }

  /** Shows what this tab showed before a reload, and goes on with answers that were being written. */
  async start(): Promise<void> {
    await this.refresh();
    const id = sessionStorage.getItem(OPEN);
    if (this.conversations.value.some((conversation) => conversation.id === id)) await this.show(id ?? "");
  }

  // ---- which conversation ----

  async show(id: string): Promise<void> {
    const conversation = this.conversations.value.find((each) => each.id === id);
    if (!conversation) return;
    const messages = await this.library.messages(id);
    this.enter(conversation, new Map(messages.map((message) => [message.id, message])));
    for (const message of messages) if (this.isLeft(message)) void this.write(message);
  }

  new(): void {
    this.enter(newConversation(), new Map());
  }

  async rename(conversation: Conversation, title: string): Promise<void> {
    await this.keep({ ...conversation, title: title.trim() || conversation.title });
  }

  async togglePin(conversation: Conversation): Promise<void> {
    await this.keep({ ...conversation, isPinned: !conversation.isPinned });
  }

  async remove({ id }: Conversation): Promise<void> {
    if (this.open.value.id === id) {
      this.stop();
      this.new();
    }
    await this.library.remove(id);
    await this.refresh();
  }

  async add(conversations: Saved[]): Promise<void> {
    for (const { conversation, messages } of conversations) await this.library.save(conversation, messages);
    await this.refresh();
  }

  search = (text: string) => this.library.search(text);
  all = () => this.library.all();
  messagesOf = (id: string) => this.library.messages(id);

  private enter(conversation: Conversation, messages: Messages): void {
    this.open.value = conversation;
    this.messages.value = messages;
    this.draft.value = EMPTY;
    this.problem.value = "";
    sessionStorage.setItem(OPEN, conversation.id);
  }

  /** Whether this tab was receiving the answer when it was reloaded. */
  private isLeft(message: Message): message is Answer {
    const isOurs = message.role === "assistant" && message.state === "writing" && message.writer === this.tab;
    return isOurs && !this.running.value.has(message.id);
  }

  private async refresh(): Promise<void> {
    this.conversations.value = await this.library.conversations();
  }

  /** Another tab has changed something. */
  private async follow({ conversation, message }: Change): Promise<void> {
    const isOpen = this.open.value.id === conversation;
    if (message) {
      if (isOpen) this.put(message);
      return;
    }
    await this.refresh();
    if (!isOpen) return;
    const now = this.conversations.value.find(({ id }) => id === conversation);
    if (!now) return this.new();
    const messages = await this.library.messages(conversation);
    const ours = [...this.messages.value.values()].filter(({ id }) => this.running.value.has(id));
    this.messages.value = new Map([...messages, ...ours].map((each) => [each.id, each]));
    this.open.value = { ...now, last: this.isWriting.value ? this.open.value.last : now.last };
  }

  // ---- the open conversation ----

  async send(): Promise<void> {
    const { text, attachments, parent = this.open.value.last } = this.draft.value;
    if ((!text.trim() && !attachments.length) || this.isWriting.value) return;
    const question: Question = { ...this.place(parent), role: "user", content: text.trim(), attachments };
    const answer = this.answerTo(question, [...pathTo(this.messages.value, parent), question]);
    if (!answer) return;
    this.draft.value = EMPTY;
    const title = this.open.value.title || titleOf(text) || attachments[0]?.name || "";
    await this.append([question, answer], title);
    await this.write(answer);
  }

  async askAgain({ parent }: Answer): Promise<void> {
    const question = parent === null ? undefined : this.messages.value.get(parent);
    const answer = question && this.answerTo(question, pathTo(this.messages.value, parent));
    if (!answer) return;
    await this.append([answer], this.open.value.title);
    await this.write(answer);
  }

  goOn = (answer: Answer) => this.write(answer);

  stop(): void {
    for (const [id, controller] of this.running.value) if (this.messages.value.has(id)) controller.abort();
  }

  /** Puts the message into the composer; sending it begins a branch beside the old one. */
  edit({ content, attachments, parent }: Question): void {
    this.draft.value = { text: content, attachments, parent };
  }

  async choose(id: string): Promise<void> {
    await this.keep({ ...this.open.value, last: newestEnd(this.messages.value, id) });
  }

  /** Asks again with the values that the server used, and compares texts and logprobs. */
  async compare(answer: Answer): Promise<void> {
    this.put({ ...answer, same: strings.askingAgain });
    let same: string;
    try {
      same = verdict(answer, await receive(againOf(answer), null, () => undefined));
    } catch (error) {
      same = strings.couldNotAsk(messageOf(error));
    }
    this.put({ ...answer, same });
    await this.library.saveMessage({ ...answer, same });
  }

  private place(parent: string | null): Pick<Message, "id" | "conversation" | "parent" | "order"> {
    return { id: newId(), conversation: this.open.value.id, parent, order: nextOrder(this.messages.value) };
  }

  private answerTo(question: Message, history: Message[]): Answer | null {
    const request = this.requestFor(history);
    if (!request) return null;
    return {
      ...this.place(question.id),
      order: question.order + 1,
      role: "assistant",
      content: "",
      reasoning: "",
      toolCalls: [],
      logprobs: [],
      state: "writing",
      writer: this.tab,
      request,
      lastId: null,
    };
  }

  private requestFor(history: Message[]): ChatRequest | null {
    const chosen = settings.value;
    const system: ChatMessage[] = chosen.system.trim() ? [{ role: "system", content: chosen.system.trim() }] : [];
    const told = history.map((message): ChatMessage => ({ role: message.role, content: contentOf(message) }));
    try {
      return {
        model: chosen.model,
        messages: [...system, ...told],
        ...requestFields(chosen),
        logprobs: true,
        stream: true,
        stream_options: { include_usage: true },
      };
    } catch (error) {
      this.problem.value = strings.badSchema(messageOf(error));
      return null;
    }
  }

  private async append(added: Message[], title: string): Promise<void> {
    for (const message of added) this.put(message);
    sessionStorage.setItem(OPEN, this.open.value.id);
    const last = added.at(-1)?.id ?? null;
    this.open.value = { ...this.open.value, title, last, changed: Date.now() };
    await this.library.save(this.open.value, added);
    await this.refresh();
  }

  private async keep(conversation: Conversation): Promise<void> {
    if (this.open.value.id === conversation.id) this.open.value = conversation;
    await this.library.save(conversation, []);
    await this.refresh();
  }

  /** Shows the message as it is now, if its conversation is open. */
  private put(message: Message): void {
    if (message.conversation !== this.open.value.id) return;
    this.messages.value = new Map(this.messages.value).set(message.id, message);
  }

  // ---- answers ----

  /** Receives the rest of the answer. */
  private async write(answer: Answer): Promise<void> {
    const controller = new AbortController();
    this.running.value = new Map(this.running.value).set(answer.id, controller);
    this.problem.value = "";
    let latest: Answer = { ...answer, state: "writing", writer: this.tab };
    const shown = limited(SHOW_MS, () => this.put(latest));
    const saved = limited(SAVE_MS, () => void this.library.saveMessage(latest));
    try {
      latest = await receive(latest, controller.signal, (received) => {
        latest = received;
        shown.soon();
        saved.soon();
      });
      latest = { ...latest, state: "done" };
    } catch (error) {
      if (this.isLeaving) return;
      latest = { ...latest, state: controller.signal.aborted ? "stopped" : "failed" };
      if (latest.state === "failed") this.problem.value = strings.broken(messageOf(error));
    } finally {
      shown.cancel();
      saved.cancel();
    }
    this.running.value = new Map([...this.running.value].filter(([id]) => id !== answer.id));
    this.put(latest);
    await this.library.saveMessage(latest);
    this.answered();
  }
}

/** Calls `action` at most once in `ms`, a while after it was asked for. */
function limited(ms: number, action: () => void): { soon: () => void; cancel: () => void } {
  let timer: number | null = null;
  const run = () => {
    timer = null;
    action();
  };
  return {
    soon: () => (timer ??= window.setTimeout(run, ms)),
    cancel: () => {
      if (timer !== null) clearTimeout(timer);
      timer = null;
    },
  };
}
