// The models that the server offers, for the picker.

import { computed, signal } from "@preact/signals";
import type { Model } from "./api_types";
import { listModels } from "./server";
import { change, settings } from "./settings";

export const models = signal<Model[]>([]);
export const chosenModel = computed(() => models.value.find(({ id }) => id === settings.value.model));

/** Throws Refusal if the server wants another key. */
export async function loadModels(): Promise<void> {
  models.value = await listModels();
  if (!chosenModel.value) change({ model: models.value[0]?.id ?? "" });
}

/** States change with every answer. What is shown stays if the server cannot be asked. */
export function refreshModels(): void {
  listModels().then(
    (list) => (models.value = list),
    () => undefined,
  );
}
