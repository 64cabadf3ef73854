// The types of the page's own values. The types of the server's answers are in `types.d.ts`.
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

/** A lease's row, with the time for which its figures are true. */
export type TimedRow = Row & {at: string};
export type TimedOverview = Omit<Overview, "leases"> & {leases: TimedRow[]};
export type TimedDetail = Omit<Detail, "row"> & {row: TimedRow};

/** An amount of money, from the server or computed by the page. Null is unknown. */
export type Usd = string | number | null | undefined;
/** A time as the server sends it, or in milliseconds. */
export type Moment = string | number;

/** The kind of a message or state. Each kind has its colour and its shape. */
export type Tone = "good" | "warn" | "bad" | "wait" | "still" | "soft" | "accent";
export interface Standing {
  kind: Tone;
  words: () => string;
}

/** An error, and the next step. */
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

/** The action whose dialog is open: for a lease, for a box without a lease, or for an offer. */
export interface OpenAction {
  verb: string;
  row?: TimedRow;
  box?: Stray;
  /** The offer to rent, for how many hours of work, and the platform's name. */
  offer?: {offer: Ranked; hours: number; title: string};
  then?: "keep" | "park";
  /** The first values of the dialog's fields. */
  begins?: Record<string, unknown>;
}

/** The state of the page. */
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

/** A component of the page. */
export type Part<Properties = any> = (properties: Properties) => Children;

/** The metrics of another job, to compare with the one that is shown. */
export interface Other {
  label: string;
  metrics: Record<string, Measured>;
}

/** The metrics of a job by step. Null is a value that is not a number. */
export interface Measured {
  steps: number[];
  values: (number | null)[];
}

/** A search in a log. */
export interface Searched {
  words: string;
  exact: boolean;
}

/** Lets the stream call `tell` with each piece of a log. Returns the function to stop this. */
export type Hearing = (tell: (piece: LogPiece) => void) => () => void;

/** An event of a field. */
export type Typed = Event & {target: HTMLInputElement};

/** What the stream should send besides the overview. */
export interface Query {
  lease?: string;
  job?: string | null;
  cursor?: number | null;
}

/** The functions that are called with news of the lease that a component follows. */
export interface Follower {
  job?: (seen: Seen) => void;
  log?: (piece: LogPiece) => void;
  blind?: (sight: Sight) => void;
  seeing?: (sight: Sight) => void;
}

/** The readings of a job over time, in columns, one for each GPU. Null means that there is no reading. */
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

/** The hits of a search in a log so far. */
export interface Looked {
  hits: Hit[];
  scanned: number;
  size: number;
  state: "idle" | "looking" | "over";
  problem: Told | null;
}

/** A piece of a log: its bytes from `from` to `to`. */
export type LogPiece = Pick<LogWindow, "from" | "to" | "size" | "text">;

/** The rows of the screen at which the lines of a log begin. */
export interface Layout {
  total: number;
  wide: number | null;
  rowOf: (line: number) => number;
  lineAt: (row: number) => number;
}

/** A file with its standing: what was proved about it. */
export type Judged = File & {standing: string};

/** The progress of a job, as far as it is known. */
export type Way = Partial<Progress>;
export type JudgedFiles = Omit<Files, "shown"> & {shown: Judged[]};

/** The type of the server's answer at each address without parameters. */
export interface Answers {
  "/api/checkup": Checkup;
  "/api/errands": Begun;
  "/api/history": History;
  "/api/overview?which=all": Overview;
  "/api/platforms": Platform[];
  "/api/signatures": Open;
}
