// The operator's view: answers to three questions, charts, requests and users; the rest unfolds. The server pushes it
// while the view is shown.

import type { ComponentChild } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Overview, OpenRequest, SlowRequest, Times, UserShare } from "../api_types";
import { watchOverview } from "../overview";
import { settings } from "../settings";
import { strings } from "../strings";
import { bytes, milliseconds, number, percent, seconds } from "../units";
import { Answers } from "./answers";
import { CacheTable } from "./cache_table";
import { HistoryCharts } from "./history_charts";
import { KeysTable } from "./keys_table";
import { ModelsTable } from "./models_table";
import { Table } from "./table";

export function ServerView() {
  const [now, setNow] = useState<Overview | null>(null);
  const [note, setNote] = useState("");
  const { model } = settings.value;
  useEffect(() => {
    const watching = new AbortController();
    const show = (latest: Overview) => {
      setNow(latest);
      setNote("");
    };
    void watchOverview(model, { show, note: setNote }, watching.signal);
    return () => watching.abort();
  }, [model]);
  const isAdmin = now !== null || (note !== "" && note !== strings.needsAdmin); // an unloaded model has no figures
  return (
    <main id="server">
      <p id="server-note" role="status">
        {note}
      </p>
      {now && <Answers now={now} />}
      {now && <HistoryCharts promise={now.in_time} />}
      {now && <Tables now={now} />}
      {now && <Unfolding id="more" title={strings.moreFigures} content={() => <More now={now} />} />}
      {isAdmin && <Unfolding id="all-models" title={strings.models.title} content={() => <ModelsTable />} />}
      {now && <Unfolding id="all-cached" title={strings.cache.title} content={() => <CacheTable />} />}
      {now && <Unfolding id="all-keys" title={strings.keys.title} content={() => <KeysTable />} />}
    </main>
  );
}

/** What is made when it is first unfolded. */
function Unfolding({ id, title, content }: { id: string; title: string; content: () => ComponentChild }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details id={id} class="more" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && content()}
    </details>
  );
}

type Figure = [name: string, value: string | number];

function More({ now }: { now: Overview }) {
  return (
    <>
      <FigureList figures={[...mainFigures(now), ...moreFigures(now)]} />
      <h2>{strings.slowestTitle}</h2>
      <Table
        id="slowest"
        label={strings.slowestTitle}
        columns={strings.columns.slowest}
        rows={now.slowest.map(slowRow)}
        empty={strings.noEnded}
      />
    </>
  );
}

function FigureList({ figures }: { figures: Figure[] }) {
  return (
    <dl id="figures" class="figures">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function mainFigures(now: Overview): Figure[] {
  const { figures } = strings;
  const speed = number(now.generated_per_second);
  const limit = now.limit_per_second;
  return [
    [figures.running, now.requests_running],
    [figures.waiting, now.requests_waiting],
    [figures.generated, limit === null ? speed : strings.of(speed, number(limit, 0))],
    [figures.prompt, number(now.prompt_per_second)],
    [figures.step, strings.step(milliseconds(now.step_ms), number(now.tokens_per_step))],
    [figures.bandwidth, percent(now.weights_bandwidth_use)],
    [figures.firstToken, milliseconds(now.ttft_ms)],
    [figures.queue, milliseconds(now.queue_ms)],
    [figures.gap, milliseconds(now.gap_ms)],
  ];
}

function moreFigures(now: Overview): Figure[] {
  const { figures } = strings;
  const disk = now.disk_bytes;
  return [
    [figures.drafts, percent(now.drafts_accepted)],
    [figures.memory, strings.of(bytes(now.memory_bytes), bytes(now.memory_limit_bytes))],
    [figures.kvUse, percent(now.kv_use)],
    [figures.kvCached, percent(now.kv_cached)],
    [figures.cacheHits, percent(now.cache_hit_rate)],
    [figures.disk, disk === null ? strings.off : strings.of(bytes(disk), bytes(now.disk_max_bytes))],
    [figures.fromDisk, number(now.disk_hit_tokens_per_second, 0)],
    [figures.preemptions, now.preemptions],
    [figures.refused, now.refused],
    [figures.failed, now.engine_failures],
    [figures.throttled, seconds(now.throttled_s)],
  ];
}

function Tables({ now }: { now: Overview }) {
  const { columns } = strings;
  return (
    <>
      <h2>{strings.runningAndWaiting}</h2>
      <p class="legend">
        {(["queue", "prefill", "decode", "other"] as const).map((phase) => (
          <span key={phase} class={phase}>
            {strings.phases[phase]}
          </span>
        ))}
      </p>
      <Table
        id="requests"
        label={strings.runningAndWaiting}
        columns={columns.requests}
        rows={now.requests.map(openRow)}
        empty={strings.nothingRuns}
      />
      <h2>{strings.usersTitle}</h2>
      <Table
        id="users"
        label={strings.usersTitle}
        columns={columns.users}
        rows={now.users.map(userRow)}
        empty={strings.noUser}
      />
    </>
  );
}

const userName = (user: string) => user || strings.everybody;

function openRow({ user, route, phase, times, ...request }: OpenRequest) {
  const isPrefill = phase === "prefill";
  // A preempted request reads its prompt again, and what it has answered so far.
  const state = isPrefill && request.generated_tokens ? strings.readsAgain : strings.phaseStates[phase];
  const all = request.prompt_tokens + request.generated_tokens;
  const prompt = isPrefill ? strings.of(`${request.computed_tokens}`, `${all}`) : `${request.prompt_tokens}`;
  const cached = strings.withCached(prompt, request.cached_tokens);
  const age = seconds(request.seconds);
  return [userName(user), route, state, cached, request.generated_tokens, age, <Phases times={times} />];
}

function userRow({ user, ...share }: UserShare) {
  const shares = [percent(share.share), percent(share.fair_share)];
  return [userName(user), share.running, share.waiting, number(share.tokens_per_second), ...shares, share.tokens];
}

function slowRow(request: SlowRequest) {
  return [
    new Date(1000 * request.ended_at).toLocaleTimeString(),
    userName(request.user),
    request.route,
    strings.withCached(`${request.prompt_tokens}`, request.cached_tokens),
    request.generated_tokens,
    seconds(request.seconds),
    <Phases times={request.times} />,
    why(request),
  ];
}

/** A bar with a part for each phase; its label gives the figures to readers who do not see it. */
function Phases({ times }: { times: Times }) {
  const { queue_s, prefill_s, decode_s, other_s } = times;
  const parts = Object.entries({ queue: queue_s, prefill: prefill_s, decode: decode_s, other: other_s });
  const label = parts
    .filter(([, time]) => time > 0)
    .map(([name, time]) => `${name} ${seconds(time)}`)
    .join(", ");
  return (
    <div class="phases" role="img" aria-label={label} title={label}>
      {parts.map(([name, time]) => (
        <span key={name} class={name} style={{ flexGrow: 1000 * time }} /> // parts that sum to less than 1 leave room
      ))}
    </div>
  );
}

/** The phase that took longest, and what usually makes it long. */
function why(request: SlowRequest): string {
  const { queue_s, prefill_s, decode_s, other_s } = request.times;
  const longest = Math.max(queue_s, prefill_s, decode_s, other_s);
  const share = percent(longest / Math.max(request.seconds, 1e-9));
  if (longest === other_s) return request.end === "whole" ? strings.whyOther(share) : strings.noTimes(request.end);
  if (longest === queue_s) return strings.whyQueue(share);
  if (longest === prefill_s) return strings.whyPrefill(share, request.prompt_tokens - request.cached_tokens);
  return strings.whyDecode(share, number(request.generated_tokens / Math.max(decode_s, 1e-9)));
}
