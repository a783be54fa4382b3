import { expect, test } from "vitest";
import { shaped } from "../src/text/math_letters";

test.each([
  ["bold", "Fx1", "𝐅𝐱𝟏"],
  ["italic", "gh", "𝑔ℎ"],
  ["double-struck", "RA1", "ℝ𝔸𝟙"],
  ["script", "LAo", "ℒ𝒜ℴ"],
  ["fraktur", "gR", "𝔤ℜ"],
  ["monospace", "a+0", "𝚊+𝟶"],
  ["normal", "d", "d"],
])("%s", (variant, text, letters) => expect(shaped(text, variant)).toBe(letters));
