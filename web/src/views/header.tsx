// The bar at the top: views, the model picker, theme.

import { currentKey } from "../key";
import { chosenModel, models, refreshModels } from "../models";
import { change, settings } from "../settings";
import { strings } from "../strings";
import { switchTheme } from "../theme";
import { Icon } from "./icons";

export type View = "chat" | "server";

interface Props {
  /** Whether the user is logged in, or need not. */
  isOpen: boolean;
  view: View;
  onView: (view: View) => void;
  onLogOut: () => void;
  onList: () => void;
  isListShown: boolean;
}

export function Header({ isOpen, view, onView, onLogOut, onList, isListShown }: Props) {
  const tab = (name: View, label: string) => (
    <button id={`show-${name}`} aria-pressed={view === name} onClick={() => onView(name)}>
      {label}
    </button>
  );
  return (
    <header>
      {isOpen && view === "chat" && (
        <button
          class="icon-button list-button"
          aria-label={isListShown ? strings.hideConversations : strings.showConversations}
          aria-expanded={isListShown}
          onClick={onList}
        >
          <Icon name="menu" />
        </button>
      )}
      <h1>{strings.title}</h1>
      <nav aria-label={strings.views}>
        {isOpen && tab("chat", strings.chat)}
        {isOpen && tab("server", strings.server)}
        <a href="docs">{strings.api}</a>
      </nav>
      {isOpen && <ModelPicker />}
      <span class="end">
        {isOpen && currentKey() && <button onClick={onLogOut}>{strings.logOut}</button>}
        <button id="theme" class="icon-button" aria-label={strings.theme} title={strings.theme} onClick={switchTheme}>
          <Icon name="theme" />
        </button>
      </span>
    </header>
  );
}

function ModelPicker() {
  const context = chosenModel.value?.max_model_len;
  return (
    <span class="picker">
      <select
        id="model"
        aria-label={strings.model}
        value={settings.value.model}
        onFocus={refreshModels}
        onChange={(event) => change({ model: event.currentTarget.value })}
      >
        {models.value.map(({ id, state }) => (
          <option key={id} value={id}>
            {state && state !== "loaded" ? strings.modelState(id, state) : id}
          </option>
        ))}
      </select>
      {context !== undefined && <span class="dim context">{strings.context(context)}</span>}
    </span>
  );
}
