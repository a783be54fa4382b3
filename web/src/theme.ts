// Light or dark: the system's, until the user chooses.

import { change, settings } from "./settings";

export function applyTheme(): void {
  const { theme } = settings.value;
  if (theme) document.documentElement.dataset["theme"] = theme;
}

export function switchTheme(): void {
  const isSystemDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = (settings.value.theme ?? (isSystemDark ? "dark" : "light")) === "dark";
  change({ theme: isDark ? "light" : "dark" });
  applyTheme();
}
