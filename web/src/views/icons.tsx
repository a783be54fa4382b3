// Line drawings of 24 by 24, in the colour of the text. A label beside or on the button says what it does.

const PATHS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  attach: "M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.6-8.6a3.4 3.4 0 0 1 4.8 4.8l-8.6 8.6a1.7 1.7 0 0 1-2.4-2.4l7.8-7.8",
  send: "M12 20V5M5.5 11.5L12 5l6.5 6.5",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6L6 18",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14zM16 16l5 5",
  previous: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  tool: "M14 6a4 4 0 0 1 5-1l-3 3 1 2 2 1 3-3a4 4 0 0 1-6 4L8 20l-3-3 8-8a4 4 0 0 1 1-3z",
};

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
