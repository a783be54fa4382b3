// What the user has chosen, kept in the browser.

import { signal } from "@preact/signals";
import type { ChatRequest } from "./api_types";

export interface Preset {
  name: string;
  text: string;
}

export interface Settings {
  model: string;
  system: string;
  presets: Preset[];
  /** Numbers as they were typed; empty: the model's or the server's choice. */
  temperature: string;
  topP: string;
  seed: string;
  maxTokens: string;
  /** A JSON schema that answers must follow; empty: none. */
  schema: string;
  theme: "light" | "dark" | null;
}

const STORE = "surefoot-settings";
const DEFAULTS: Settings = {
  model: "",
  system: "",
  presets: [],
  temperature: "",
  topP: "",
  seed: "",
  maxTokens: "",
  schema: "",
  theme: null,
};

export const settings = signal<Settings>({ ...DEFAULTS, ...stored() });

function stored(): Partial<Settings> {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "{}") as Partial<Settings>;
  } catch {
    return {};
  }
}

export function change(changes: Partial<Settings>): void {
  settings.value = { ...settings.value, ...changes };
  localStorage.setItem(STORE, JSON.stringify(settings.value));
}

/** The fields of a request that the settings give. Throws SyntaxError for a schema that is no JSON. */
export function requestFields(chosen: Settings): Pick<ChatRequest, "temperature" | "top_p" | "seed" | "max_tokens"> {
  const number = (text: string) => (text.trim() === "" ? undefined : Number(text));
  const schema = chosen.schema.trim();
  return {
    temperature: number(chosen.temperature),
    top_p: number(chosen.topP),
    seed: number(chosen.seed),
    max_tokens: number(chosen.maxTokens),
    ...(schema && {
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) as object } },
    }),
  };
}
