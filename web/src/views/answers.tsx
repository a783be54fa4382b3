// What an operator asks first: is everyone served in time, what limits the server, who uses it?

import type { ComponentChildren } from "preact";
import type { Overview } from "../api_types";
import { strings } from "../strings";
import { percent } from "../units";

const MOST_USERS = 3;
const WELL = 0.95; // the share in time from which all is well
const FAIR = 0.8;

export function Answers({ now }: { now: Overview }) {
  const { answers } = strings;
  const active = now.users.filter(({ running, waiting, share }) => running + waiting > 0 || (share ?? 0) > 0);
  const [limit, meaning] = strings.limits[now.limit];
  const alerts = now.alerts.map(({ kind, value }) => strings.alerts[kind](value));
  return (
    <>
      <div id="alerts" role="alert" hidden={alerts.length === 0}>
        {alerts.map((alert) => (
          <p key={alert}>{alert}</p>
        ))}
      </div>
      <div id="answers">
        <Answer question={answers.isInTime} answer={verdict(now.in_time)}>
          {served(now.in_time).map((line) => (
            <li key={line}>{line}</li>
          ))}
        </Answer>
        <Answer question={answers.whatLimits} answer={limit}>
          <li>{meaning}</li>
        </Answer>
        <Answer question={answers.whoUses} answer={answers.users(active.length)}>
          {active.slice(0, MOST_USERS).map(({ user, share, fair_share: fair }) => (
            <li key={user}>
              {answers.share(user || strings.everybody, percent(share), fair === null ? "" : percent(fair))}
            </li>
          ))}
        </Answer>
      </div>
    </>
  );
}

function Answer({ question, answer, children }: { question: string; answer: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{question}</h2>
      <p class="verdict">{answer}</p>
      <ul>{children}</ul>
    </section>
  );
}

function verdict({ first_tokens, gaps }: Overview["in_time"]): string {
  const { answers } = strings;
  if (first_tokens === null) return answers.nobody;
  const least = Math.min(first_tokens, gaps ?? 1);
  if (least >= WELL) return answers.yes;
  return least >= FAIR ? answers.mostly : answers.no;
}

function served(found: Overview["in_time"]): string[] {
  const { answers } = strings;
  const lines = [];
  if (found.first_tokens !== null)
    lines.push(answers.firstTokens(percent(found.first_tokens), found.num_first_tokens, found.first_token_s));
  if (found.gaps !== null) lines.push(answers.gaps(percent(found.gaps), 1000 * found.gap_s));
  return lines;
}
