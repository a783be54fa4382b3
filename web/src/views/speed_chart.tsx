// Generated tokens a second over the last minutes, under what memory bandwidth allows.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { strings } from "../strings";

export interface Speed {
  /** Seconds since 1970. */
  at: number;
  speed: number | null;
  limit: number | null;
}

const HEIGHT = 160;
const SHOWN_S = 120;

export function SpeedChart({ speeds }: { speeds: Speed[] }) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  useLayoutEffect(() => {
    if (!place.current) return;
    const made = new uPlot(options(place.current), [[], [], []], place.current);
    chart.current = made;
    const watcher = new ResizeObserver(([entry]) => entry && made.setSize(sizeOf(entry.contentRect.width)));
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => {
    const column = (name: keyof Speed) => speeds.map((speed) => speed[name]);
    chart.current?.setData([speeds.map(({ at }) => at), column("speed"), column("limit")]);
  }, [speeds]);
  return (
    <>
      <h2>{strings.speedTitle}</h2>
      <div id="speed" role="img" aria-label={strings.speedLabel} ref={place} />
    </>
  );
}

const sizeOf = (width: number) => ({ width: Math.max(200, Math.floor(width)), height: HEIGHT });

function options(place: HTMLElement): uPlot.Options {
  const colour = (name: string) => () => colourOf(place, name);
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    ...sizeOf(place.clientWidth),
    cursor: { drag: { x: false, y: false } },
    legend: { live: false },
    scales: {
      x: { range: (_, __, latest) => [latest - SHOWN_S, latest] },
      y: { range: (_, __, most) => [0, Math.max(1, 1.1 * most)] },
    },
    axes: [axis, { ...axis, size: 50 }],
    series: [
      { label: strings.time },
      { label: strings.generated, stroke: colour("--accent"), width: 2, points: { show: false } },
      { label: strings.allowed, stroke: colour("--dim"), dash: [6, 4], points: { show: false } },
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
