// The parts of the server's replies that the page reads.

export interface Model {
  id: string;
  /** Given by a server with several models: loaded, loading, unloaded … */
  state?: string;
  /** Tokens of prompt and answer together. */
  max_model_len?: number;
}

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  temperature?: number | undefined;
  top_p?: number | undefined;
  seed?: number | undefined;
  max_tokens?: number | undefined;
  response_format?: unknown;
  tools?: unknown;
  logprobs: true;
  stream: true;
  stream_options: { include_usage: true };
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number };
  timings_ms?: { queue: number; prefill: number; decode: number };
  /** The values that the server used: with them the same request gives the same answer. */
  sampling?: Record<string, unknown>;
}

export interface ToolCall {
  name: string;
  /** JSON, as the model wrote it. */
  arguments: string;
}

export interface ChatChunk {
  error?: { message: string };
  system_fingerprint?: string;
  usage?: Usage | null;
  choices: {
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      tool_calls?: { index: number; function?: { name?: string; arguments?: string } }[];
    };
    logprobs?: { content?: { logprob: number }[] | null } | null;
  }[];
}

export interface Times {
  queue_s: number;
  prefill_s: number;
  decode_s: number;
  other_s: number;
}

export interface OpenRequest {
  user: string;
  route: string;
  phase: "queue" | "prefill" | "decode";
  times: Times;
  computed_tokens: number;
  prompt_tokens: number;
  generated_tokens: number;
  cached_tokens: number;
  seconds: number;
}

export interface SlowRequest {
  user: string;
  route: string;
  times: Times;
  ended_at: number;
  end: string;
  prompt_tokens: number;
  generated_tokens: number;
  cached_tokens: number;
  seconds: number;
}

export interface UserShare {
  user: string;
  running: number;
  waiting: number;
  tokens_per_second: number;
  share: number | null;
  fair_share: number | null;
  tokens: number;
}

export type Limit =
  "nothing" | "quota" | "memory" | "places" | "memory bandwidth" | "arithmetic" | "attention" | "overhead";

export type AlertKind = "stuck" | "failures" | "lines_lost" | "memory" | "throttled" | "late_first" | "late_gaps";

/** An event of /overview. */
export interface Overview {
  is_alive: boolean;
  in_time: {
    first_tokens: number | null;
    gaps: number | null;
    num_first_tokens: number;
    first_token_s: number;
    gap_s: number;
  };
  limit: Limit;
  alerts: { kind: AlertKind; value: number }[];
  requests_running: number;
  requests_waiting: number;
  generated_per_second: number | null;
  limit_per_second: number | null;
  prompt_per_second: number | null;
  step_ms: number | null;
  tokens_per_step: number | null;
  weights_bandwidth_use: number | null;
  ttft_ms: number | null;
  queue_ms: number | null;
  gap_ms: number | null;
  drafts_accepted: number | null;
  memory_bytes: number;
  memory_limit_bytes: number;
  kv_use: number | null;
  kv_cached: number | null;
  cache_hit_rate: number | null;
  disk_bytes: number | null;
  disk_max_bytes: number;
  disk_hit_tokens_per_second: number | null;
  preemptions: number;
  refused: number;
  engine_failures: number;
  throttled_s: number;
  requests: OpenRequest[];
  users: UserShare[];
  slowest: SlowRequest[];
}

export type Span = "minutes" | "day" | "week";

/** Of /overview/history: a value for each point. */
export interface History {
  at: number[];
  generated: number[];
  prompt: number[];
  running: number[];
  waiting: number[];
  first_s: (number | null)[];
  gap_s: (number | null)[];
}

export interface NewKey {
  user: string;
  admin: boolean;
  weight: number;
  requests_per_minute: number | null;
  tokens_per_minute: number | null;
}

export interface Key extends NewKey {
  name: string;
  max_context: number | null;
}

/** Of /admin/models. */
export interface ManagedModel {
  name: string;
  aliases: string[];
  /** As in `Model`. */
  state: string;
  is_pinned: boolean;
  num_running: number;
  file_bytes: number;
  memory_bytes: number;
  /** Tokens of one request that fit. */
  context: number;
}

export interface ManagedModels {
  data: ManagedModel[];
  /** Memory that the models share; null: the server has one model, which stays loaded. */
  limit_bytes: number | null;
}

/** Of /admin/cache. */
export interface CachedUser {
  /** null: only the hash is known. */
  user: string | null;
  hash: string;
  bytes: number;
}
