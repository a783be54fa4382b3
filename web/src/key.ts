// The key that the user typed: kept in the tab, or in the browser if the user wants that.

const KEY = "surefoot-key";

export const currentKey = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
export const isRemembered = () => localStorage.getItem(KEY) !== null;

export function setKey(key: string, remember: boolean): void {
  forgetKey();
  (remember ? localStorage : sessionStorage).setItem(KEY, key);
}

export function forgetKey(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

export function keyHeaders(): Record<string, string> {
  const key = currentKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}
