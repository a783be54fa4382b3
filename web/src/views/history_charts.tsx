// Charts of the last quarter of an hour, day or week.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { History, Overview, Span } from "../api_types";
import { readHistory } from "../server";
import { settings } from "../settings";
import { strings } from "../strings";

const HEIGHT = 150;
const READ_MS = { minutes: 5000, day: 60_000, week: 60_000 }; // the server adds points as often, or less
const SPANS: Span[] = ["minutes", "day", "week"];
const LENGTHS_S = { minutes: 900, day: 86400, week: 604800 };

type Column = Exclude<keyof History, "at">;
interface Line {
  column: Column;
  label: string;
  colour: string;
}

export function HistoryCharts({ promise }: { promise: Overview["in_time"] }) {
  const [span, setSpan] = useState<Span>("minutes");
  const [history, setHistory] = useState<History | null>(null);
  const { model } = settings.value;
  useEffect(() => {
    let isOver = false;
    const read = () =>
      readHistory(model, span)
        .then((latest) => isOver || setHistory(latest))
        .catch(() => undefined); // the stream of figures tells what is wrong
    void read();
    const timer = setInterval(() => void read(), READ_MS[span]);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [model, span]);
  const { charts, figures } = strings;
  const usual = (column: Column): Line[] => [{ column, label: charts.usual, colour: "--accent" }];
  const shown = [
    { title: charts.firstToken, limit: promise.first_token_s, lines: usual("first_s") },
    { title: charts.gap, limit: promise.gap_s, lines: usual("gap_s") },
    {
      title: charts.tokens,
      lines: [
        { column: "generated" as const, label: charts.generated, colour: "--accent" },
        { column: "prompt" as const, label: charts.prompt, colour: "--prefill" },
      ],
    },
    {
      title: charts.requests,
      lines: [
        { column: "running" as const, label: figures.running, colour: "--accent" },
        { column: "waiting" as const, label: figures.waiting, colour: "--queue" },
      ],
    },
  ];
  return (
    <section aria-label={charts.title}>
      <div class="spans" role="group" aria-label={charts.title}>
        {SPANS.map((each) => (
          <button key={each} aria-pressed={each === span} onClick={() => setSpan(each)}>
            {charts.spans[each]}
          </button>
        ))}
      </div>
      <div class="charts">
        {shown.map((chart) => (
          <Chart key={chart.title} {...{ history, span }} {...chart} />
        ))}
      </div>
    </section>
  );
}

interface Props {
  title: string;
  history: History | null;
  span: Span;
  lines: Line[];
  /** A dashed line: what users should see at most. */
  limit?: number;
}

function Chart({ title, history, span, lines, limit }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const { theme } = settings.value; // a chart keeps the colours that it was made with
  useLayoutEffect(() => {
    if (!place.current) return;
    const made = new uPlot(options(place.current, lines, limit, LENGTHS_S[span]), [[]], place.current);
    chart.current = made;
    const watcher = new ResizeObserver(([entry]) => entry && made.setSize(sizeOf(entry.contentRect.width)));
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
  }, [span, theme]);
  useEffect(() => {
    if (!history) return;
    const start = Date.now() / 1000 - LENGTHS_S[span]; // where the dashed line begins
    const columns = lines.map(({ column }) => [null, ...history[column]]);
    if (limit !== undefined) columns.push([limit, ...history.at.map(() => limit)]);
    chart.current?.setData([[Math.min(start, history.at[0] ?? start), ...history.at], ...columns]);
  }, [history, span, theme]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="chart" role="img" aria-label={`${title}, ${strings.charts.spans[span]}`} ref={place} />
    </figure>
  );
}

const sizeOf = (width: number) => ({ width: Math.max(200, Math.floor(width)), height: HEIGHT });

function options(place: HTMLElement, lines: Line[], limit: number | undefined, length: number): uPlot.Options {
  const colour = (name: string) => () => colourOf(place, name);
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const dashed = { label: strings.charts.promise, stroke: colour("--dim"), dash: [6, 4], points: { show: false } };
  return {
    ...sizeOf(place.clientWidth),
    cursor: { drag: { x: false, y: false } },
    legend: { live: false },
    scales: {
      x: { range: () => [Date.now() / 1000 - length, Date.now() / 1000] },
      y: { range: (_, __, most) => [0, 1.1 * (most || 1)] },
    },
    axes: [axis, { ...axis, size: 50 }],
    series: [
      { label: strings.charts.time },
      ...lines.map(({ label, colour: name }) => ({ label, stroke: colour(name), width: 2, points: { show: false } })),
      ...(limit === undefined ? [] : [dashed]),
    ],
  };
}

/** The colour as canvas understands it: the variable's own text has light-dark() in it. */
function colourOf(place: HTMLElement, name: string): string {
  place.style.color = `var(${name})`;
  const colour = getComputedStyle(place).color;
  place.style.color = "";
  return colour;
}
