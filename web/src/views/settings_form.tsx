// What goes along with every question: system message, sampling, length, the form of the answer.

import { useState } from "preact/hooks";
import { change, settings, type Settings } from "../settings";
import { strings } from "../strings";

type TextSetting = "temperature" | "topP" | "seed" | "maxTokens";

export function SettingsForm() {
  const number = (name: TextSetting, id: string, label: string, placeholder: string, limits: object) => (
    <label>
      {label}
      <input
        id={id}
        type="number"
        value={settings.value[name]}
        placeholder={placeholder}
        onInput={(event) => change({ [name]: event.currentTarget.value })}
        {...limits}
      />
    </label>
  );
  return (
    <details class="settings-frame">
      <summary>{strings.settings}</summary>
      <div class="settings">
        <SystemMessage />
        {number("temperature", "temperature", strings.temperature, strings.modelsChoice, { min: 0, max: 2, step: 0.1 })}
        {number("topP", "top-p", strings.topP, strings.modelsChoice, { min: 0, max: 1, step: 0.05 })}
        {number("seed", "seed", strings.seed, strings.serversChoice, { min: 0, step: 1 })}
        {number("maxTokens", "max-tokens", strings.maxTokens, strings.noLimit, { min: 1, step: 1 })}
        <LongText name="schema" label={strings.schema} placeholder={strings.noSchema} />
      </div>
    </details>
  );
}

interface LongTextProps {
  name: keyof Pick<Settings, "system" | "schema">;
  label: string;
  placeholder?: string;
}

function LongText({ name, label, placeholder = "" }: LongTextProps) {
  return (
    <label class="wide">
      {label}
      <textarea
        id={name}
        rows={2}
        value={settings.value[name]}
        placeholder={placeholder}
        onInput={(event) => change({ [name]: event.currentTarget.value })}
      />
    </label>
  );
}

/** The system message, and texts for it that were kept under a name. */
function SystemMessage() {
  const [name, setName] = useState("");
  const { presets, system } = settings.value;
  const chosen = presets.find(({ text }) => text === system);
  const save = () => {
    const others = presets.filter((preset) => preset.name !== name.trim());
    change({ presets: [...others, { name: name.trim(), text: system }] });
    setName("");
  };
  return (
    <div class="wide system">
      <LongText name="system" label={strings.system} />
      <div class="presets">
        {presets.length > 0 && (
          <select
            aria-label={strings.presets}
            value={chosen?.name ?? ""}
            onChange={(event) => {
              const wanted = event.currentTarget.value;
              change({ system: presets.find((preset) => preset.name === wanted)?.text ?? "" });
            }}
          >
            <option value="">{strings.noPreset}</option>
            {presets.map((preset) => (
              <option key={preset.name}>{preset.name}</option>
            ))}
          </select>
        )}
        {chosen ? (
          <button type="button" onClick={() => change({ presets: presets.filter((preset) => preset !== chosen) })}>
            {strings.deletePreset}
          </button>
        ) : (
          <>
            <input
              aria-label={strings.presetName}
              placeholder={strings.presetName}
              value={name}
              onInput={(event) => setName(event.currentTarget.value)}
            />
            <button type="button" disabled={!name.trim() || !system.trim()} onClick={save}>
              {strings.savePreset}
            </button>
          </>
        )}
      </div>
    </div>
  );
}
