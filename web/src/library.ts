// The conversations that this browser keeps. Each message is a record of its own, so that tabs that write into the same
// conversation do not overwrite each other. Tabs tell each other what they changed.

import type { Conversation, Message } from "./conversation";
import { completed, openDatabase, settled } from "./database";

const NAME = "surefoot";
const CONVERSATIONS = "conversations";
const MESSAGES = "messages";

/** What another tab changed. message: null where more than one message, or none, changed. */
export interface Change {
  conversation: string;
  message: Message | null;
}

export interface Saved {
  conversation: Conversation;
  messages: Message[];
}

export class Library {
  private readonly database: IDBDatabase;
  private readonly tabs = new BroadcastChannel(NAME);

  private constructor(database: IDBDatabase) {
    this.database = database;
  }

  static async open(): Promise<Library> {
    const database = await openDatabase(NAME, 1, (made) => {
      made.createObjectStore(CONVERSATIONS, { keyPath: "id" });
      made.createObjectStore(MESSAGES, { keyPath: "id" }).createIndex("conversation", "conversation");
    });
    return new Library(database);
  }

  onChange(listener: (change: Change) => void): void {
    this.tabs.onmessage = (event: MessageEvent<Change>) => listener(event.data);
  }

  async conversations(): Promise<Conversation[]> {
    const store = this.database.transaction(CONVERSATIONS).objectStore(CONVERSATIONS);
    return (await settled(store.getAll())) as Conversation[];
  }

  async messages(conversation: string): Promise<Message[]> {
    const index = this.database.transaction(MESSAGES).objectStore(MESSAGES).index("conversation");
    return (await settled(index.getAll(conversation))) as Message[];
  }

  async save(conversation: Conversation, messages: Message[]): Promise<void> {
    const transaction = this.database.transaction([CONVERSATIONS, MESSAGES], "readwrite");
    transaction.objectStore(CONVERSATIONS).put(conversation);
    for (const message of messages) transaction.objectStore(MESSAGES).put(message);
    await completed(transaction);
    this.tell({ conversation: conversation.id, message: null });
  }

  async saveMessage(message: Message): Promise<void> {
    const transaction = this.database.transaction([CONVERSATIONS, MESSAGES], "readwrite");
    const kept = await settled(transaction.objectStore(CONVERSATIONS).getKey(message.conversation));
    if (kept === undefined) return; // it was deleted while the answer was written
    transaction.objectStore(MESSAGES).put(message);
    await completed(transaction);
    this.tell({ conversation: message.conversation, message });
  }

  async remove(conversation: string): Promise<void> {
    const transaction = this.database.transaction([CONVERSATIONS, MESSAGES], "readwrite");
    transaction.objectStore(CONVERSATIONS).delete(conversation);
    const messages = transaction.objectStore(MESSAGES);
    const keys = await settled(messages.index("conversation").getAllKeys(conversation));
    for (const key of keys) messages.delete(key);
    await completed(transaction);
    this.tell({ conversation, message: null });
  }

  async all(): Promise<Saved[]> {
    const conversations = await this.conversations();
    return Promise.all(
      conversations.map(async (conversation) => ({ conversation, messages: await this.messages(conversation.id) })),
    );
  }

  /** Ids of the conversations that have the text in their title or in a message. */
  async search(text: string): Promise<Set<string>> {
    const wanted = text.toLowerCase();
    const found = new Set<string>();
    for (const { conversation, messages } of await this.all()) {
      const texts = [conversation.title, ...messages.map(({ content }) => content)];
      if (texts.some((each) => each.toLowerCase().includes(wanted))) found.add(conversation.id);
    }
    return found;
  }

  private tell(change: Change): void {
    this.tabs.postMessage(change);
  }
}
