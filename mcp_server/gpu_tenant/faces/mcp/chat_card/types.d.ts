// What the server sends: written from its records by `make docs`. Not edited by hand.
// Money is a string of a decimal number; null is unknown, and not zero.

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

export interface Foreign {
  provider: string;
  box: string;
  state: string;
  price_usd_h: string | null;
  /** whether its mark is that of another gpu-tenant */
  deployment: string | null;
  name: string | null;
  gpus: string | null;
  created_at: string | null;
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

export type LeaseState = "intended" | "active" | "terminating" | "gone" | "void" | "lost";

export interface Leases {
  leases: Card[];
  alarms: string[];
  foreign: Foreign[];
  /** our volumes, and what bills although no box uses it */
  also_billing: string[];
  /** on all leases, including ended ones */
  spent_usd: string;
  /** now, including the disks of stopped boxes */
  burning_usd_h: string;
  /** besides that: of the boxes that are not ours */
  foreign_usd_h: string;
  /** of boxes on which no job runs */
  leaking_usd_month: string;
  /** what these sums lack */
  not_counted: string[];
  /** whether a watchdog looks after them */
  watched: string;
  /** give it back to see the leases before these */
  older: string | null;
  /** the state of their cells */
  sweeps: string[];
  /** wishes that stand */
  waiting: string[];
  /** leases that the search did not find */
  hidden: number;
  /** a line for each lease, where asked */
  brief: string[];
}

export interface Outcome {
  grade: "done" | "suspect" | "incomplete" | "failed";
  reasons: string[];
}

export interface Progress {
  done: number | null;
  total: number | null;
  unit: "step" | "epoch" | "it" | null;
  fraction: number | null;
  metrics: Record<string, number>;
}

export interface Pruned {
  here: string[];
  on_the_box: string[];
  stayed: string[];
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

export interface ToDo {
  matter: "job over" | "taken" | "silent" | "alarm" | "ends soon";
  /** None: unknown since when */
  since_s: number | null;
  /** what it has cost since then */
  since_usd: string | null;
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
