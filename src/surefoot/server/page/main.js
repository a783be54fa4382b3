// Start: log in if the server wants a key, fill the model picker, switch views and themes.

import { resume, startChat } from "./chat.js";
import { hideOperator, showOperator, watchOtherModel } from "./operator.js";
import { listModels, loginProblem, setKey } from "./server.js";

const THEME = "surefoot-theme";
const at = (id) => document.getElementById(id);
let isStarted = false;
let shown = []; // models in the picker

async function open() {
  try {
    fillPicker(await listModels());
  } catch (error) {
    askForKey(error);
    return;
  }
  at("login").hidden = true;
  document.body.classList.remove("locked");
  show("chat");
  if (!isStarted) {
    isStarted = true;
    startChat(refreshPicker);
  }
  resume();
}

/** Models by name. A server with several models says which are loaded; the others are loaded when they are asked. */
function fillPicker(models) {
  shown = models;
  const chosen = at("model").value;
  const label = ({ id, state }) => (state && state !== "loaded" ? `${id} (${state})` : id);
  at("model").replaceChildren(...models.map((model) => new Option(label(model), model.id, false, model.id === chosen)));
}

/** States change with every answer. What is shown stays if the server cannot be asked. */
const refreshPicker = async () => fillPicker(await listModels().catch(() => shown));

function askForKey(error) {
  document.body.classList.add("locked");
  at("chat").hidden = at("server").hidden = true;
  at("login").hidden = false;
  at("login-error").textContent = loginProblem(error, at("key").value);
  at("key").focus();
}

function show(view) {
  at("chat").hidden = view !== "chat";
  at("server").hidden = view !== "server";
  at("show-chat").setAttribute("aria-pressed", view === "chat");
  at("show-server").setAttribute("aria-pressed", view === "server");
  if (view === "server") showOperator();
  else hideOperator();
}

function switchTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem(THEME, document.documentElement.dataset.theme);
}

const theme = localStorage.getItem(THEME);
if (theme) document.documentElement.dataset.theme = theme;
at("theme").addEventListener("click", switchTheme);
at("model").addEventListener("focus", () => isStarted && refreshPicker());
at("model").addEventListener("change", watchOtherModel);
at("show-chat").addEventListener("click", () => isStarted && show("chat"));
at("show-server").addEventListener("click", () => isStarted && show("server"));
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value);
  open();
});
open();
