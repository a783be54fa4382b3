// Letters of math in other shapes: bold, blackboard bold, script … KaTeX marks them by mathvariant, which browsers no
// longer draw: MathML Core wants Unicode's own letters.

interface Shape {
  /** Code points of A, a and 0 in this shape; null: there are none. */
  upper: number | null;
  lower: number | null;
  digit: number | null;
  /** Letters that Unicode had before, and so are elsewhere. */
  elsewhere?: Record<string, string>;
}

const SHAPES: Record<string, Shape> = {
  bold: { upper: 0x1d400, lower: 0x1d41a, digit: 0x1d7ce },
  italic: { upper: 0x1d434, lower: 0x1d44e, digit: null, elsewhere: { h: "ℎ" } },
  "bold-italic": { upper: 0x1d468, lower: 0x1d482, digit: null },
  script: {
    upper: 0x1d49c,
    lower: 0x1d4b6,
    digit: null,
    elsewhere: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  },
  fraktur: {
    upper: 0x1d504,
    lower: 0x1d51e,
    digit: null,
    elsewhere: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  },
  "double-struck": {
    upper: 0x1d538,
    lower: 0x1d552,
    digit: 0x1d7d8,
    elsewhere: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  },
  "sans-serif": { upper: 0x1d5a0, lower: 0x1d5ba, digit: 0x1d7e2 },
  "bold-sans-serif": { upper: 0x1d5d4, lower: 0x1d5ee, digit: 0x1d7ec },
  monospace: { upper: 0x1d670, lower: 0x1d68a, digit: 0x1d7f6 },
};

/** The text in the shape that a mathvariant names; characters that have no such shape stay. */
export function shaped(text: string, variant: string): string {
  const shape = SHAPES[variant];
  return shape ? text.replaceAll(/[A-Za-z0-9]/g, (character) => shapedCharacter(character, shape)) : text;
}

function shapedCharacter(character: string, { upper, lower, digit, elsewhere }: Shape): string {
  const other = elsewhere?.[character];
  if (other !== undefined) return other;
  const from = (first: string, start: number) =>
    String.fromCodePoint(start + character.charCodeAt(0) - first.charCodeAt(0));
  if (upper !== null && /^[A-Z]$/.test(character)) return from("A", upper);
  if (lower !== null && /^[a-z]$/.test(character)) return from("a", lower);
  if (digit !== null && /^\d$/.test(character)) return from("0", digit);
  return character;
}
