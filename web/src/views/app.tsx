// The frame: log-in, then the chat or the server's view.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chat } from "../chat";
import { currentKey, forgetKey } from "../key";
import { Library } from "../library";
import { loadModels, refreshModels } from "../models";
import { loginProblem, messageOf } from "../server";
import { strings } from "../strings";
import { applyTheme } from "../theme";
import { ChatView } from "./chat_view";
import { Header, type View } from "./header";
import { Login } from "./login";

type State = { kind: "starting" } | { kind: "locked"; problem: string } | { kind: "open"; chat: Chat };

applyTheme();

export function App() {
  const [state, setState] = useState<State>({ kind: "starting" });
  const [view, setView] = useState<View>("chat");
  const [isListShown, setListShown] = useState(false);
  const start = () => void open().then(setState);
  useEffect(start, []);

  const logOut = () => {
    forgetKey();
    if (state.kind === "open") state.chat.stop();
    start();
  };

  const isOpen = state.kind === "open";
  return (
    <>
      <Header
        isOpen={isOpen}
        view={view}
        onView={setView}
        onLogOut={logOut}
        onList={() => setListShown(!isListShown)}
        isListShown={isListShown}
      />
      {state.kind === "locked" && <Login problem={state.problem} onLogin={start} />}
      {isOpen && (
        <ChatView
          chat={state.chat}
          isHidden={view !== "chat"}
          isListShown={isListShown}
          onHideList={() => setListShown(false)}
        />
      )}
      {isOpen && view === "server" && <Lazy load={loadServerView} />}
    </>
  );
}

const loadServerView = async () => (await import("./server_view")).ServerView;

/** A view whose code is loaded when it is first shown. */
function Lazy({ load }: { load: () => Promise<FunctionComponent> }) {
  const [View, setView] = useState<FunctionComponent | null>(null);
  useEffect(() => void load().then((loaded) => setView(() => loaded)), []);
  return View && <View />;
}

let chat: Promise<Chat> | null = null; // one, also if the user logs out and in again

async function open(): Promise<State> {
  try {
    await loadModels();
  } catch (error) {
    return { kind: "locked", problem: loginProblem(error, currentKey()) };
  }
  try {
    chat ??= startChat();
    return { kind: "open", chat: await chat };
  } catch (error) {
    chat = null;
    return { kind: "locked", problem: strings.needsDatabase(messageOf(error)) };
  }
}

async function startChat(): Promise<Chat> {
  const started = new Chat(await Library.open(), refreshModels);
  await started.start();
  return started;
}
