// Numbers as people read them. null: the server has not measured it yet.

const UNKNOWN = "–";

export const number = (value: number | null, digits = 1) => (value === null ? UNKNOWN : value.toFixed(digits));
export const percent = (share: number | null) => (share === null ? UNKNOWN : `${Math.round(100 * share)} %`);
export const milliseconds = (value: number | null) =>
  value === null ? UNKNOWN : `${value.toFixed(value < 100 ? 1 : 0)} ms`;
export const seconds = (value: number) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);

export function bytes(value: number): string {
  const power = value > 0 ? Math.min(3, Math.floor(Math.log(value) / Math.log(1024))) : 0;
  return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB"][power] ?? ""}`;
}
