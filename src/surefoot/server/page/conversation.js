// A conversation as a tree of messages: editing a message begins a branch beside it. Kept in the tab's storage, so that
// a reload finds it again, and an answer that was being written goes on where it was.

const STORE = "surefoot-conversation";

export class Conversation {
  constructor() {
    const stored = JSON.parse(sessionStorage.getItem(STORE) ?? "null");
    this.messages = stored?.messages ?? []; // {role, content, parent, …}; a message's number is its place
    this.last = stored?.last ?? -1; // the message that is shown last; -1: none
  }

  save() {
    sessionStorage.setItem(STORE, JSON.stringify({ messages: this.messages, last: this.last }));
  }

  add(message, parent) {
    this.messages.push({ ...message, parent });
    this.last = this.messages.length - 1;
    this.save();
    return this.last;
  }

  /** Numbers of the messages from the first to `end`. */
  path(end = this.last) {
    const numbers = [];
    for (let number = end; number >= 0; number = this.messages[number].parent) numbers.unshift(number);
    return numbers;
  }

  /** Numbers of the messages that answer or replace the same one. */
  siblings(number) {
    const { parent, role } = this.messages[number];
    return this.messages.flatMap((other, place) => (other.parent === parent && other.role === role ? [place] : []));
  }

  /** Show the branch through this message, to its newest end. */
  choose(number) {
    let end = number;
    for (let place = number + 1; place < this.messages.length; place++) {
      if (this.messages[place].parent === end) end = place;
    }
    this.last = end;
    this.save();
  }

  clear() {
    this.messages = [];
    this.last = -1;
    this.save();
  }
}
