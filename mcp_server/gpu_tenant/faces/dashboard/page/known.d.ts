// What the page itself makes of what the server sends; `types.d.ts` has that.
import type {
  Begun,
  Checkup,
  Detail,
  Errand,
  File,
  Files,
  History,
  Hit,
  LogWindow,
  Open,
  Overview,
  Platform,
  Progress,
  Ranked,
  Row,
  Seen,
  Sight,
  Stray,
} from "./types.d.ts";
import type {Children} from "./vendor/htm-preact.js";

/** A lease's row, with the moment when its figures were true. */
export type TimedRow = Row & {at: string};
export type TimedOverview = Omit<Overview, "leases"> & {leases: TimedRow[]};
export type TimedDetail = Omit<Detail, "row"> & {row: TimedRow};

/** An amount of money as the server sends it, or as the page has reckoned it; null is unknown. */
export type Usd = string | number | null | undefined;
/** A moment as the server sends it, or in milliseconds. */
export type Moment = string | number;

/** How something is told: each has its colour and its shape. */
export type Tone = "good" | "warn" | "bad" | "wait" | "still" | "soft" | "accent";
export interface Standing {
  kind: Tone;
  words: () => string;
}

/** What went wrong, and the next step. */
export interface Told {
  code?: string;
  message: string;
  remedy?: string;
}

export type Link = "opening" | "live" | "offline" | "asleep" | "refused";

export interface Route {
  name: string;
  id: string | null;
  rest: string[];
  query: string;
}

/** What a person is about to do: with a lease, or with a box that is under none. */
export interface OpenAction {
  verb: string;
  row?: TimedRow;
  box?: Stray;
  /** What is to be rented, for how many hours of work, and the platform's name. */
  offer?: {offer: Ranked; hours: number; title: string};
  then?: "keep" | "park";
  /** What its dialog has filled in at first. */
  begins?: Record<string, unknown>;
}

/** What the page knows. */
export interface Known {
  link: Link;
  problem: Told | null;
  since: number | null;
  route: Route;
  overview: TimedOverview | null;
  errands: Record<number, Errand>;
  blind: Record<string, Sight>;
  action: OpenAction | null;
}

/** A part of the page. */
export type Part<Properties = any> = (properties: Properties) => Children;

/** What another job measured, to be laid over the one that is shown. */
export interface Other {
  label: string;
  metrics: Record<string, Measured>;
}

/** What a job measured by step; null where a value is no number. */
export interface Measured {
  steps: number[];
  values: (number | null)[];
}

/** What is searched for in a log. */
export interface Searched {
  words: string;
  exact: boolean;
}

/** Has `tell` called with each piece of a log that the stream brings; it returns how to stop. */
export type Hearing = (tell: (piece: LogPiece) => void) => () => void;

/** An event of a field. */
export type Typed = Event & {target: HTMLInputElement};

/** What the stream is asked for besides the overview. */
export interface Query {
  lease?: string;
  job?: string | null;
  cursor?: number | null;
}

/** What a part hears of the lease that it follows. */
export interface Follower {
  job?: (seen: Seen) => void;
  log?: (piece: LogPiece) => void;
  blind?: (sight: Sight) => void;
  seeing?: (sight: Sight) => void;
}

/** The readings of a job over time, in columns: one for each GPU, and null where nobody looked. */
export interface Readings {
  times: number[];
  names: string[];
  models: Set<string>;
  util: (number | null)[][];
  mem: (number | null)[][];
  memory: (number | null)[];
  disk: (number | null)[];
  memTotal: number | null;
  memoryLimit: number | null;
  metrics: Record<string, Measured>;
  readBytes: number | null;
  logBytes: number | null;
}

/** A line of a chart. */
export interface Drawn {
  name: string;
  values: (number | null)[];
}

/** What a search in a log has found so far. */
export interface Looked {
  hits: Hit[];
  scanned: number;
  size: number;
  state: "idle" | "looking" | "over";
  problem: Told | null;
}

/** A piece of a log: its bytes from `from` to `to`. */
export type LogPiece = Pick<LogWindow, "from" | "to" | "size" | "text">;

/** Where a log's lines stand in rows of the screen. */
export interface Layout {
  total: number;
  wide: number | null;
  rowOf: (line: number) => number;
  lineAt: (row: number) => number;
}

/** A file with how it stands: what was proved of it. */
export type Judged = File & {standing: string};

/** How far a job is, as much of it as is known. */
export type Way = Partial<Progress>;
export type JudgedFiles = Omit<Files, "shown"> & {shown: Judged[]};

/** What the server answers at each address that has no parameter. */
export interface Answers {
  "/api/checkup": Checkup;
  "/api/errands": Begun;
  "/api/history": History;
  "/api/overview?which=all": Overview;
  "/api/platforms": Platform[];
  "/api/signatures": Open;
}
