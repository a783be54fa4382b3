// Copies a text. Browsers offer the clipboard to pages that came over TLS or from this machine; elsewhere a selection
// that nobody sees is copied.

export function copyText(text: string): void {
  if (window.isSecureContext) void navigator.clipboard.writeText(text);
  else copySelection(text);
}

function copySelection(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden-label";
  document.body.append(area);
  area.select();
  document.execCommand("copy"); // eslint-disable-line @typescript-eslint/no-deprecated
  area.remove();
}
