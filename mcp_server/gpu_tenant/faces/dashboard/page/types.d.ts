// What the server sends: written from its records by `make docs`. Not edited by hand.
// Money is a string of a decimal number; null is unknown, and not zero.

export interface Alarmed {
  words: string;
  level: string;
  since: string;
}

export interface Begun {
  errands: Errand[];
}

export interface Burning {
  at: number;
  usd_h: string;
}

export interface Card {
  lease: string;
  /** PROJECT/NAME #TAG, as said, or as pushed and run */
  name: string;
  provider: string;
  state: LeaseState;
  box: string | null;
  address: string | null;
  age_s: number;
  /** None: it has ended */
  deadline_in_s: number | null;
  price_usd_h: string | null;
  /** what its rate is for, now */
  bills: "box" | "disk" | "nobody" | "no more" | "unknown";
  /** while it boots or is parked: what it costs once it runs */
  running_usd_h: string | null;
  max_price_usd_h: string | null;
  budget_usd: string | null;
  /** when the budget ends it, if before its deadline */
  budget_end: string | null;
  cost_usd: string | null;
  forecast_deadline_usd: string | null;
  /** about, at its job's end */
  forecast_job_usd: string | null;
  job_ends_in_s: number | null;
  /** it bills although no job runs */
  leaking_usd_month: string | null;
  counts: string;
  /** the policy in force */
  terms: string[];
  /** if this computer dies */
  stops_the_meter: string;
  /** who enforces its terms meanwhile */
  watched: string;
  phase: string;
  condition: Condition;
  jobs: string[];
  alarm: string | null;
  /** from where it goes on with another lease's work, and what that left */
  recovered: string;
  /** files that nobody has claimed */
  unclaimed: string;
  /** if its GPU may be too small for what was tested */
  memory: string;
  /** ports that are open to the whole internet, as just looked up */
  published: string[];
  next: string;
  fleet: string | null;
  /** its fleet, if several boxes were asked for */
  together: Fleet | null;
}

export interface CellRow {
  cell: string;
  state: "verified" | "finished" | "running" | "queued" | "waiting" | "given_up" | "failed" | "missing" | "duplicate";
  /** the lease where it is, or was last; None: nowhere yet */
  lease: string | null;
  job: string | null;
  attempts: number;
  /** why it did not end well, as its box reported */
  why: string | null;
  parameters: Record<string, string>;
  /** the last metrics in its kept log */
  metrics: Record<string, number>;
  /** how long its last run took; None: it has not ended */
  took_s: number | null;
  /** the cost of that run, at its box's rate */
  cost_usd: string | null;
  /** where its collected files are */
  files: string | null;
}

export interface ChangedRows {
  /** when the box was looked at; figures that grow with time grow from then on */
  at: string;
  /** when it was told */
  now: string;
  watched: string;
  alarms: string[];
  foreign: Stray[];
  also_billing: string[];
  spent_usd: string | null;
  burning_usd_h: string | null;
  leaking_usd_month: string | null;
  not_counted: string[];
  sweeps: string[];
  waiting: string[];
  /** why the last look failed; if so, everything else is from the look before */
  trouble: Trouble | null;
  rows: LeaseRow[];
}

export interface Checkup {
  healthy: boolean;
  findings: Examined[];
}

export interface Collected {
  lease: string;
  seal: string;
  directory: string;
  files: number;
  size_bytes: number;
  fetched_files: number;
  fetched_bytes: number;
  /** if nothing new came now: when the last files came */
  came_at: string | null;
  /** the same in words, and what brought them */
  came_before: string | null;
  /** of these, what nobody declared: it came home all the same */
  unasked_files: number;
  unasked_bytes: number;
  /** the largest of them, by name */
  unasked: string[];
  unclaimed_files: number;
  unclaimed_bytes: number;
  unclaimed_largest: string[];
  /** what it would take and cost to fetch them */
  unclaimed_takes: string | null;
  discarded_bytes: number;
  discarded_by: string[];
  cannot_be_kept: string[];
  /** pipes, and links that lead to nothing kept: they hold no bytes */
  not_files: string[];
  never_appeared: string[];
  /** the verdict on the work so far, as the receipt will give it; None: no job ran, or there is too much to read it twice */
  work: string | null;
  /** collected before, and no longer on the box */
  only_here: string[];
  /** where older versions of what came now lie */
  superseded: string | null;
  /** how many files the lease's store holds as well */
  stored: string | null;
  /** why that store does not hold it all */
  not_stored: string | null;
  next: string;
}

export interface Condition {
  /** its phase; while the box is ready, how its last job ended */
  word: string;
  tone: "good" | "accent" | "wait" | "still" | "soft" | "warn" | "bad";
  group: "attention" | "running" | "idle" | "starting" | "ending" | "still" | "free" | "over";
  /** the box bills, and no job runs on it any more */
  is_wasted: boolean;
  /** None: no person is needed */
  to_do: ToDo | null;
}

export interface CostShare {
  /** None: leases of no project, or without a tag */
  name: string | null;
  leases: number;
  usd: string;
}

export interface Counted {
  count: number;
  bytes: number;
}

export interface CredentialResult {
  written: string;
  test: Tested;
}

export interface Dates {
  created_at: string;
  active_at: string | null;
  ready_at: string | null;
  parked_at: string | null;
  ended_at: string | null;
  deadline_at: string;
  kept_in: string | null;
  recovers: string | null;
  fleet: string | null;
  rates: Rated[];
}

export interface Day {
  day: string;
  usd: Record<string, string>;
}

export interface Detail {
  /** when the figures of its row were true */
  at: string;
  row: LeaseRow;
  /** how a person's ssh reaches its box: not at all, by `gpu-tenant ssh`, or by plain `ssh` as well */
  login: "none" | "ours" | "plain";
  lease: Dates;
  policy: Policy;
  jobs: JobSeen[];
  events: Line[];
  files: Files | null;
  receipt: Receipt | null;
  /** None: no smoke test has estimated it */
  memory: MemoryWanted | null;
  alarms: Alarmed[];
}

export interface Errand {
  id: number;
  lease: string | null;
  verb: string;
  state: "running" | "done" | "failed";
  began_at: string;
  ended_at: string | null;
  done_bytes: number;
  total_bytes: number;
  words: string;
  result: Record<string, JsonValue> | null;
  error: Trouble | null;
}

export interface Examined {
  subject: string;
  level: "ok" | "warning" | "blocker";
  words: string;
}

export interface File {
  name: string;
  role: string;
  kind: string;
  size_bytes: number;
  sha256: string | null;
  evidence: Proved | null;
}

export interface Files {
  sealed_at: number;
  /** when everything had arrived, each file with the hash that the seal has */
  collected_at: string | null;
  /** when all of it was re-read here */
  verified_at: string | null;
  /** when it was copied to the store */
  stored_at: string | null;
  digest: string;
  total: number;
  bytes: number;
  shown: File[];
  unclaimed: Unclaimed;
  discarded: Counted;
  problems: Problem[];
  unmatched: string[];
}

export interface Fleet {
  fleet: string;
  asked: number;
  had: number;
  /** the live leases */
  leases: string[];
  /** of all leases together */
  usd_h: string | null;
  not_ready: string[];
  /** why there are fewer boxes than asked for */
  missing: string[];
  next: string;
}

export interface Found {
  offers: Ranked[];
  /** the quote with the lowest price by the hour */
  cheapest: string | null;
  /** what is cheaper at untested hosts */
  untested: string | null;
  /** how many offers were left out, by reason */
  unfit: Record<string, number>;
  /** providers that did not answer, and what to do */
  troubles: Record<string, string>;
  /** what `gpu-tenant.toml` asks for */
  order: string[];
  /** what `provision` waits for */
  wish: string | null;
  next: string;
}

export interface Gpu {
  index: number;
  name: string;
  util_pct: number | null;
  mem_used_mib: number | null;
  mem_total_mib: number | null;
  temp_c: number | null;
}

export interface GpuCourse {
  index: number;
  name: string;
  util: (number | null)[];
  mem_mib: (number | null)[];
  temp_c: (number | null)[];
}

export interface History {
  days: Day[];
  leases: Past[];
  spent_usd: string;
  burning: Burning[];
  /** the dearest first */
  projects: CostShare[];
  /** the dearest first; a lease with two tags is in both */
  tags: CostShare[];
  month: Month;
  /** leases for which the rate of some hours is unknown; no sum here includes these hours */
  unknown: string[];
}

export interface Hit {
  /** byte of the log at which the line begins */
  at: number;
  line: string;
}

export interface Hits {
  hits: Hit[];
  scanned_to: number;
  size: number;
  source: "box" | "kept" | "seen";
}

export interface JobMoment {
  lease: string;
  job: string;
  state: "absent" | "starting" | "running" | "lingering" | "finished" | "failed" | "killed" | "stopped";
  exit_code: number | null;
  why: string | null;
  progress: Progress | null;
  log: string;
  cursor: number;
  log_skipped_bytes: number;
  log_size_bytes: number;
  gpus: Gpu[];
  memory_used_bytes: number | null;
  memory_limit_bytes: number | null;
  disk_free_bytes: number | null;
  running_s: number | null;
  cost_usd: string | null;
  /** why `cost_usd` is unknown */
  nobody_bills: boolean;
  deadline_in_s: number;
  alarm: string | null;
  /** how often it should save, as seen so far */
  cadence: string | null;
  /** pages that its log names; the log may lie */
  trackers: string[];
  /** when the budget ends the lease, if before its deadline */
  budget_end: string | null;
  /** whether it ends before its lease, and what gives it more time */
  outlook: string | null;
  /** if the job runs over several leases, its state on the others */
  gang: string | null;
  next: string;
  at: string;
  run: string;
  /** the metrics in the newest lines of its log, by step */
  measured: Record<string, Series>;
}

export interface JobSeen {
  id: string;
  command: string;
  artifacts: string[];
  discard: string[];
  env_names: string[];
  declared_at: string;
  launched_at: string | null;
  last: LastSeen | null;
}

export type JsonValue = unknown;

export interface Keyed {
  needed: boolean;
  found: boolean;
  reference: string | null;
  usual_env: string[];
}

export interface LastSeen {
  at: string;
  state: string | null;
  fraction: number | null;
  done: number | null;
  total: number | null;
}

export interface LeaseRow {
  card: Card;
  title: string;
  kind: string;
  gpu: string | null;
  park: "keeps" | "wipes" | "none";
  park_how: "api" | "in_box" | "owner";
  /** why its box could not be asked, which does not mean that it is gone */
  blind: string | null;
  /** the newest job that runs; if none runs, the newest job */
  job: Working | null;
  /** whether the state of the job is an old one, because its box cannot be seen now */
  is_old: boolean;
  others_running: number;
  /** how its newest job ended, by the ledger; only for a box that is stopped */
  ended: "absent" | "starting" | "running" | "lingering" | "finished" | "failed" | "killed" | "stopped" | null;
  /** whether its owner has signed that the box is destroyed once its rescue sum is spent */
  signed_ahead: boolean;
  /** the actions that make sense now, the most fitting first */
  verbs: ("end" | "extend" | "terms" | "park" | "resume" | "resume_and_end" | "give_more" | "look" | "stop" | "stop_and_park" | "collect" | "snapshot" | "teardown" | "waive" | "recover")[];
  /** whether a watchdog does what is next without being asked */
  by_itself: boolean;
}

export type LeaseState = "intended" | "active" | "terminating" | "gone" | "void" | "lost";

export interface Line {
  at: string;
  kind: string;
  words: string;
}

export interface LogWindow {
  from: number;
  to: number;
  size: number;
  text: string;
  source: "box" | "kept" | "seen";
}

export interface Losses {
  lease: string;
  losses: string[];
  digest: string;
  asked: string | null;
}

export interface MemoryWanted {
  smoke: string;
  /** the estimate, with the lowest and the highest value */
  figures: string;
  /** how it was estimated, or a warning if the GPU may be too small */
  words: string;
  /** None: the memory of its GPU is unknown */
  fit: "fits" | "tight" | "too small" | null;
}

export interface MetricsView {
  /** seconds since the epoch, ascending */
  times: number[];
  /** percent, the mean of its GPUs */
  gpu_util: (number | null)[];
  /** of its GPUs together */
  gpu_mem_mib: (number | null)[];
  gpu_mem_total_mib: number | null;
  memory_bytes: (number | null)[];
  memory_limit_bytes: number | null;
  disk_free_bytes: (number | null)[];
  /** the fraction of the job that is done, by its own log */
  fraction: (number | null)[];
  gpus: GpuCourse[];
  /** by step, as far as looks saw them; only the log itself has all values */
  metrics: Record<string, Series>;
  log_read_bytes: number | null;
  log_size_bytes: number | null;
}

export interface Month {
  spent_usd: string;
  /** at its end, if each box bills on at its rate until its deadline */
  forecast_usd: string;
}

export interface NextSignature {
  asked: string | null;
}

export interface OpenSignatures {
  open: SignatureRequest[];
  by: "passkey" | "terminal" | "none";
  passkeys: string[];
  ends: boolean;
}

export interface Options {
  options: string;
}

export interface Outcome {
  grade: "done" | "suspect" | "incomplete" | "failed";
  reasons: string[];
}

export interface Overview {
  /** when the box was looked at; figures that grow with time grow from then on */
  at: string;
  /** when it was told */
  now: string;
  watched: string;
  alarms: string[];
  foreign: Stray[];
  also_billing: string[];
  spent_usd: string | null;
  burning_usd_h: string | null;
  leaking_usd_month: string | null;
  not_counted: string[];
  sweeps: string[];
  waiting: string[];
  /** why the last look failed; if so, everything else is from the look before */
  trouble: Trouble | null;
  leases: LeaseRow[];
}

export interface PassedSmoke {
  id: string | null;
  command: string | null;
  at: string | null;
}

export interface Past {
  lease: string;
  /** what it is called */
  name: string;
  provider: string;
  title: string;
  gpu: string | null;
  began_at: string;
  ended_at: string | null;
  state: LeaseState;
  cost_usd: string | null;
  billed_usd: string | null;
  kept_files: number | null;
  kept_bytes: number | null;
  ground: "verified" | "never_used" | "waived" | null;
}

export interface Path {
  at: string;
  size: number;
  ctime_ns: number | null;
}

export interface Platform {
  id: string;
  title: string;
  kind: string;
  lease: string;
  checked_on: string;
  trap: string;
  stops: string;
  stops_the_meter: string;
  credential: Keyed;
  /** whether this program itself keeps the list of boxes there */
  connected: boolean;
}

export interface Policy {
  lease: string;
  terms: string[];
  if_this_computer_dies: string;
}

export interface Preview {
  name: string;
  size_bytes: number;
  kind: "text" | "image" | "tensors" | "none";
  /** its first bytes, made plain */
  text: string;
  /** all of it, as a data URL */
  image: string | null;
  tensors: TensorTold[];
  /** whether this is all of it */
  whole: boolean;
}

export interface Price {
  /** all its GPUs together, while it runs */
  gpu_usd_h: string | null;
  /** the disk of the wish, while it runs */
  disk_usd_h: string | null;
  /** all that it costs while parked; None: it cannot be parked */
  parked_usd_h: string | null;
  upload_usd_gb: string | null;
  download_usd_gb: string | null;
  source: "api" | "table" | "owner";
  /** the date of a table's rate */
  as_of: string | null;
  /** the sum in the currency that is billed, and its dated rate */
  converted: string | null;
}

export interface Problem {
  at: string;
  why: string;
  detail: string;
}

export interface Progress {
  done: number | null;
  total: number | null;
  unit: "step" | "epoch" | "it" | null;
  fraction: number | null;
  metrics: Record<string, number>;
}

export interface Proved {
  at: string;
  where: string;
  format: string;
  outcome: string;
  proved: string[];
  not_proved: string[];
  warnings: string[];
  problem: string | null;
}

export interface Pruned {
  here: string[];
  on_the_box: string[];
  stayed: string[];
}

export interface Ranked {
  /** the id for `provision`; None: its price is unknown, so it cannot be rented */
  quote: string | null;
  provider: string;
  gpu: string;
  gpu_count: number;
  vram_gib: number | null;
  cpus: number | null;
  ram_gib: number | null;
  download_mbps: number | null;
  region: string | null;
  /** the machine's number; None: its provider does not say */
  host: string | null;
  running_usd_h: string | null;
  price: Price;
  interruptible: boolean;
  /** unverified: a stranger's machine, untested by its platform */
  trust: "unverified" | "verified" | "datacenter";
  reliability: number | null;
  max_hours: number | null;
  /** paid for the finished work; None: unknown */
  expected_usd: string | null;
  /** its parts and its risks, if asked for */
  terms: Term[];
  notes: string[];
  /** its GPU's memory, by a smoke test's estimate; None: unknown */
  memory: "fits" | "tight" | "too small" | null;
}

export interface Rated {
  at: string;
  usd_h: string | null;
}

export interface Receipt {
  lease_id: string;
  provider: string;
  box_id: string;
  ground: "verified" | "never_used" | "waived";
  active_at: string;
  destroy_asked_at: string;
  first_absent_at: string;
  second_absent_at: string;
  lived_s: number;
  /** None: the price was never known */
  cost_usd: string | null;
  /** the least that it may have cost; None: cost_usd */
  cost_least_usd: string | null;
  /** the most that it may have cost; None: cost_usd */
  cost_most_usd: string | null;
  /** what its provider's own records say so far; None: they say nothing */
  billed_usd: string | null;
  /** what the cost includes, and who says so; None: on an old receipt */
  counts: string | null;
  kept_files: number;
  kept_bytes: number;
  kept_in: string | null;
  /** how many kept files were proved to load, by format */
  formats: Record<string, number>;
  /** what verification could not prove, in sentences */
  not_proved: string[];
  warnings: string[];
  /** patterns discarded by name, or losses signed for */
  given_up: string[];
  /** what stays on the box or at the provider, or None */
  left_behind: string | null;
  /** the verdict on the work; None: no job ran, or an old receipt */
  outcome: Outcome | null;
}

export interface Reckoning {
  sweep: string;
  command: string;
  leases: string[];
  rows: CellRow[];
  counts: Record<string, number>;
  /** cells whose files are identical, although their parameters differ */
  twins: string[][];
  /** a sentence for each thing somebody must look at */
  wrong: string[];
  /** a hash of everything that is wrong; it changes when that changes */
  digest: string;
  /** who accepted all that is wrong now; None: nobody, or nothing is wrong */
  settled_by: string | null;
  /** how the rows are sorted; None: as declared */
  by: string | null;
  /** the best cell that ended well, its metric, and where its files are */
  best: string | null;
  /** a sentence for each NaN */
  doubtful: string[];
  /** it has a link for each cell's files */
  folder: string | null;
}

export interface Series {
  steps: number[];
  values: (number | null)[];
  not_finite: number;
}

export interface Sight {
  lease: string;
  words: string | null;
  since: string | null;
}

export interface SignatureRequest {
  code: string;
  kind: string;
  /** the lease, or what else it is about; typed to sign */
  subject: string;
  /** names exactly what is signed for */
  digest: string;
  /** what would happen, in one line */
  would: string;
  /** all of it, as it was last shown */
  words: string[];
  asked_at: string;
  /** when the words were last updated */
  as_of: string;
  expires_at: string;
}

export interface Snapshot {
  lease: string;
  directory: string;
  files: number;
  size_bytes: number;
  names: string[];
  /** how many complete files are left for the next look */
  left_out: number;
  /** bytes of artifacts that only the box has so far, as far as it says */
  to_come_bytes: number;
  unfinished_files: number;
  /** files that are still being written, and the other files of the same checkpoint */
  unfinished: string[];
  broken: string[];
  no_room: string[];
  /** older checkpoints that the owner's policy leaves on the box */
  not_wanted: string[];
  pruned: Pruned;
  running: string[];
  /** the limit on how much of the box's CPU and disk the snapshot uses */
  pace: string;
  proves: string;
  next: string;
}

export interface Sparkline {
  metric: string;
  steps: number[];
  values: number[];
}

export interface Stray {
  provider: string;
  title: string;
  box: string;
  state: string;
  price_usd_h: string | null;
  /** the other gpu-tenant that looks after it */
  deployment: string | null;
  name: string | null;
  gpus: string | null;
  can_park: boolean;
}

export interface TensorTold {
  name: string;
  dtype: string;
  shape: number[];
}

export interface Term {
  name: string;
  usd: string;
  words: string;
}

export interface Tested {
  ok: boolean;
  words: string;
}

export interface ToDo {
  matter: "job over" | "taken" | "silent" | "alarm" | "ends soon";
  /** None: unknown since when */
  since_s: number | null;
  /** what it has cost since then */
  since_usd: string | null;
}

export interface ToSign {
  asked: SignatureRequest;
  shown: string;
  by: "passkey" | "terminal" | "none";
  options: string | null;
}

export interface TornDown {
  lease: string;
  state: LeaseState;
  receipt: Receipt;
  /** who else ran a job of this lease */
  gang: string | null;
  /** a second box of its request that may bill */
  twin: string | null;
  /** if its work went over several boxes: their cost, and their files */
  work: string | null;
  /** if its work was tried before: what all attempts have cost */
  attempts: string | null;
}

export interface Trouble {
  code: string;
  message: string;
  remedy: string;
  /** the code of the signature that it waits for, if it waits for one */
  asked: string | null;
}

export interface Unclaimed {
  count: number;
  bytes: number;
  largest: Path[];
}

export interface Watched {
  lease: string;
  job: string;
  state: "absent" | "starting" | "running" | "lingering" | "finished" | "failed" | "killed" | "stopped";
  exit_code: number | null;
  why: string | null;
  progress: Progress | null;
  log: string;
  cursor: number;
  log_skipped_bytes: number;
  log_size_bytes: number;
  gpus: Gpu[];
  memory_used_bytes: number | null;
  memory_limit_bytes: number | null;
  disk_free_bytes: number | null;
  running_s: number | null;
  cost_usd: string | null;
  /** why `cost_usd` is unknown */
  nobody_bills: boolean;
  deadline_in_s: number;
  alarm: string | null;
  /** how often it should save, as seen so far */
  cadence: string | null;
  /** pages that its log names; the log may lie */
  trackers: string[];
  /** when the budget ends the lease, if before its deadline */
  budget_end: string | null;
  /** whether it ends before its lease, and what gives it more time */
  outlook: string | null;
  /** if the job runs over several leases, its state on the others */
  gang: string | null;
  next: string;
}

export interface Working {
  id: string;
  state: "absent" | "starting" | "running" | "lingering" | "finished" | "failed" | "killed" | "stopped";
  progress: Progress | null;
  gpus: Gpu[];
  others_running: number;
  /** when it was seen in this state */
  at: string;
  /** the newest measurements of its first metric */
  spark: Sparkline | null;
}
