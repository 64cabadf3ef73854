PRAGMA application_id=0;
PRAGMA user_version=16;
BEGIN TRANSACTION;
CREATE TABLE alarms(
      seq INTEGER PRIMARY KEY, lease_id TEXT REFERENCES leases(id),
      key TEXT NOT NULL, words TEXT NOT NULL, level INTEGER NOT NULL CHECK (level IN (1, 2, 3)),
      since TEXT NOT NULL, last_seen_at TEXT NOT NULL,
      told INTEGER NOT NULL DEFAULT 0, told_at TEXT, ended_at TEXT) STRICT;
CREATE TABLE askings(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      place TEXT NOT NULL, key TEXT NOT NULL, account TEXT, at TEXT NOT NULL) STRICT;
CREATE TABLE deployment(id TEXT PRIMARY KEY) STRICT;
INSERT INTO "deployment" VALUES('ab9797');
CREATE TABLE events(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      kind TEXT NOT NULL, detail TEXT NOT NULL, at TEXT NOT NULL) STRICT;
INSERT INTO "events" VALUES(1,'local-jx3a','intended','{"deadline_at": "2026-11-23T13:23:25.194251Z", "max_price_usd_h": null, "budget_usd": null, "on_deadline": "keep", "rescue_usd": null, "idle_h": null, "when_idle": "end", "store": null, "recover": []}','2026-11-23T09:23:25.194251+00:00');
INSERT INTO "events" VALUES(2,'local-jx3a','bound','{"box": "local-jx3a", "since": "2026-11-23T09:23:25.429471+00:00"}','2026-11-23T09:23:25.443514+00:00');
INSERT INTO "events" VALUES(3,'local-jx3a','marking','{"nonce": "0019b31a3f7dc852d67d1f7ec63eb2c9"}','2026-11-23T09:23:25.496433+00:00');
INSERT INTO "events" VALUES(4,'local-jx3a','marked','{"nonce": "0019b31a3f7dc852d67d1f7ec63eb2c9", "box": "local-jx3a", "since_ns": 1795425807557078831, "identity": "2286809:1795425807589280660", "key": "", "first": true}','2026-11-23T09:23:27.683172+00:00');
INSERT INTO "events" VALUES(5,'local-jx3a','ready','{}','2026-11-23T09:23:27.691300+00:00');
INSERT INTO "events" VALUES(6,'local-jx3a','pushed','{"files": 1, "bytes": 11, "tree": {"directory": "/home/me/job", "digest": "0cd82b88f1cde767cb49bbac1e0828ec91145c8690e0fea1059eeb33e039bf16", "include_secrets": []}}','2026-11-23T09:23:33.967206+00:00');
INSERT INTO "events" VALUES(7,'local-jx3a','guarded','{"armed": true, "ends_the_meter": false, "words": "armed: at 2026-11-23 13:23 UTC it stops the jobs; nobody bills for this box"}','2026-11-23T09:23:36.750439+00:00');
INSERT INTO "events" VALUES(8,'local-jx3a','launched','{"job": "train", "command": "mkdir -p out; echo \"[1]\" > out/a.json; echo hi > rest.txt", "box_time_s": 1795425820.4534488}','2026-11-23T09:23:40.905877+00:00');
INSERT INTO "events" VALUES(9,'local-jx3a','progress','{"job": "train", "state": "finished", "fraction": null, "done": null, "total": null}','2026-11-23T09:23:44.469677+00:00');
INSERT INTO "events" VALUES(10,'local-jx3a','guarded','{"armed": true, "ends_the_meter": false, "words": "armed: at 2026-11-23 14:23 UTC it stops the jobs; nobody bills for this box"}','2026-11-23T09:23:47.823730+00:00');
INSERT INTO "events" VALUES(11,'local-jx3a','terms','{"deadline_at": "2026-11-23T14:23:44.542590Z", "max_price_usd_h": null, "budget_usd": null, "on_deadline": "keep", "rescue_usd": null, "idle_h": null, "when_idle": "end", "store": null, "recover": []}','2026-11-23T09:23:50.065540+00:00');
INSERT INTO "events" VALUES(12,'local-jx3a','refused','{"words": "local-jx3a keeps its box, because this would be lost: 1 file (3 bytes) that nobody has claimed: rest.txt (3 bytes); 2 files (4 bytes) on the box differ from what was collected: log/train.log, work/out/a.json"}','2026-11-23T09:23:57.051868+00:00');
INSERT INTO "events" VALUES(13,'local-jx3a','claimed','{"artifacts": [], "discard": ["rest.txt"]}','2026-11-23T09:24:03.562885+00:00');
INSERT INTO "events" VALUES(14,'local-jx3a','sealed','{"digest": "0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813", "files": 2}','2026-11-23T09:24:07.962143+00:00');
INSERT INTO "events" VALUES(15,'local-jx3a','collected','{"seal": "0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813", "files": 2, "bytes": 4}','2026-11-23T09:24:08.142996+00:00');
INSERT INTO "events" VALUES(16,'local-jx3a','verified','{"digest": "0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813"}','2026-11-23T09:24:23.049934+00:00');
INSERT INTO "events" VALUES(17,'local-jx3a','permitted','{"ground": "verified", "seal": "0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813"}','2026-11-23T09:24:25.849788+00:00');
INSERT INTO "events" VALUES(18,'local-jx3a','destroy','{"outcome": "asked"}','2026-11-23T09:24:25.884004+00:00');
INSERT INTO "events" VALUES(19,'local-jx3a','receipt','{"ground": "verified"}','2026-11-23T09:24:26.671868+00:00');
INSERT INTO "events" VALUES(20,'local-jx3a','takes over','{"over": "own-aaaa"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(21,'local-jx3a','brokered','{"broker": "skypilot", "name": "c1", "place": "ubuntu@192.0.2.7:22"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(22,'local-jx3a','parking','{"how": "in_box"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(23,'local-jx3a','runs on','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(24,'local-jx3a','parked','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(25,'local-jx3a','resuming','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(26,'local-jx3a','resumed','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(27,'local-jx3a','price','{"from": "0.5", "to": "0.6"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(28,'local-jx3a','billed','{"usd": null}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(29,'local-jx3a','billed','{"usd": "0.0104", "until": "2026-11-23T09:24:26.798303+00:00", "parts": {"gpu": "0.0104"}, "words": "its billing endpoint"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(30,'local-jx3a','notice','{"words": "the box of x, which answers again"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(31,'local-jx3a','taken','{"fate": "outbid", "words": "somebody pays more for its GPU"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(32,'local-jx3a','taken','{"fate": null}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(33,'local-jx3a','recovered','{"fate": "outbid", "words": "somebody pays more", "jobs": ["train"], "restored_files": 2, "restored_bytes": 300, "checkpoint_at": "2026-11-23T09:24:26.798303Z", "lost_s": 112.0, "lost_usd": "0.01", "from": "own-aaaa"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(34,'local-jx3a','recovered','{"to": "own-bbbb"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(35,'local-jx3a','absent','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(36,'local-jx3a','overwritten','{"files": {"a.py": 11}}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(37,'local-jx3a','preparing','{"job": "prepare1"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(38,'local-jx3a','prepared','{"state": "done", "job": "prepare1"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(39,'local-jx3a','prepared','{"state": "failed", "job": "prepare1"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(40,'local-jx3a','launched','{"sweep": "sw-1", "jobs": ["a", "b"], "box_time_s": null}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(41,'local-jx3a','gang','{"job": "gang1", "launcher": "torchrun", "leases": ["own-aaaa", "own-bbbb"], "command": "train.py", "lines": ["x", "y"], "interface": "eth0"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(42,'local-jx3a','stopped','{"job": "train"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(43,'local-jx3a','snapshot','{"files": 1, "bytes": 20, "names": ["out/a.json"], "saves": [[1.5, 0.5, 20]], "list": "9999999999999999999999999999999999999999999999999999999999999999"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(44,'local-jx3a','snapshot','{"files": 0, "bytes": 0, "names": [], "saves": [], "list": "9999999999999999999999999999999999999999999999999999999999999999", "pruned_here": ["out/ckpt-1"]}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(45,'local-jx3a','stored','{"store": "/mnt/b", "seal": "9999999999999999999999999999999999999999999999999999999999999999", "files": 1, "bytes": 20, "missing": 0}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(46,'local-jx3a','waived','{"by": "Ann", "loss": "9999999999999999999999999999999999999999999999999999999999999999", "losses": ["out/b (3 bytes)"]}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(47,'local-jx3a','waived ahead','{"by": "Ann", "signature": "k7q2"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(48,'local-jx3a','ending','{"term": "deadline", "words": "its deadline was 2026-11-23 09:00 UTC"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(49,'local-jx3a','ending','{"term": "teardown"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(50,'local-jx3a','unseen','{"likely_less_usd": "0.01", "most_less_usd": "0.02", "words": "nobody looked"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(51,'local-jx3a','destroy','{"outcome": "refused"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(52,'local-jx3a','destroy','{"outcome": "taken"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(53,'local-jx3a','attested','{"by": "Ann", "signature": "k7q3"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(54,'local-jx3a','ended','{"state": "lost"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(55,'local-jx3a','came back','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(56,'local-jx3a','permitted','{"ground": "waived", "signed_by": "Ann", "loss": "9999999999999999999999999999999999999999999999999999999999999999", "signature": "k7q2"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(57,'local-jx3a','permitted','{"ground": "never_used"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(58,'local-jx3a','looked','{}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(59,'local-jx3a','job ended','{"job": "train", "state": "killed", "ago_s": 1.5, "why": "out of memory", "metric": "loss 0.1"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(60,'local-jx3a','lingers','{"job": "train"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(61,'local-jx3a','hold','{"until": "2026-11-23T09:24:26.798303+00:00", "by": "said"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(62,'local-jx3a','accepted','{"sweep": "sw-1"}','2026-11-23T09:24:26.798303+00:00');
INSERT INTO "events" VALUES(63,'local-jx3a','done','{"outcome": "begun", "words": "its last job ended well"}','2026-11-23T09:24:26.798303+00:00');
CREATE TABLE evidence(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
INSERT INTO "evidence" VALUES(1,'local-jx3a','0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813','{"name":"log/train.log","size_bytes":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","verdict":{"format":"unknown","outcome":"opaque","proved":[],"not_proved":["no format that can be read here is claimed: only the hash covers it"],"warnings":["empty"],"problem":null},"where":"here"}','2026-11-23T09:24:23.049934+00:00');
INSERT INTO "evidence" VALUES(2,'local-jx3a','0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813','{"name":"work/out/a.json","size_bytes":4,"sha256":"acc07b62f23f458923737c4cd4a66bd05d1e71eb4f384003baaf2dcc760d6349","verdict":{"format":"json","outcome":"loads","proved":["one whole JSON value, UTF-8 to the last byte"],"not_proved":[],"warnings":[],"problem":null},"where":"here"}','2026-11-23T09:24:23.049934+00:00');
CREATE TABLE fleets(
      seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, request TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE given_up(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id), cell TEXT NOT NULL,
      at TEXT NOT NULL, UNIQUE (sweep_id, cell)) STRICT;
CREATE TABLE holds(
      lease_id TEXT PRIMARY KEY, purpose TEXT NOT NULL, host TEXT NOT NULL,
      pid INTEGER NOT NULL, started TEXT NOT NULL, expires_at TEXT NOT NULL, token TEXT, since TEXT, renewed_at TEXT, doubted_at TEXT) STRICT;
CREATE TABLE jobs(
      lease_id TEXT NOT NULL REFERENCES leases(id), id TEXT NOT NULL, record TEXT NOT NULL,
      UNIQUE (lease_id, id)) STRICT;
INSERT INTO "jobs" VALUES('local-jx3a','train','{"id":"train","command":"mkdir -p out; echo \"[1]\" > out/a.json; echo hi > rest.txt","artifacts":["out/"],"discard":[],"env_names":[],"declared_at":"2026-11-23T09:23:34.072160Z","launched_at":"2026-11-23T09:23:40.905877Z","lease_id":"local-jx3a","env_from":[],"max_runtime_s":null}');
CREATE TABLE leases(
      id TEXT PRIMARY KEY,
      provider TEXT NOT NULL,
      state TEXT NOT NULL CHECK (state IN ('intended','active','terminating','gone','void','lost')),
      terms TEXT NOT NULL,
      box_id TEXT,
      address TEXT,
      price_usd_h TEXT,
      created_at TEXT NOT NULL,
      active_at TEXT,
      ended_at TEXT,
      touched_at TEXT,
      kept_in TEXT, mark TEXT NOT NULL DEFAULT '', quote TEXT, ready_at TEXT, parked_at TEXT, recovers TEXT REFERENCES leases(id), fleet TEXT REFERENCES fleets(id),
      CHECK (state NOT IN ('active','terminating','gone','lost') OR box_id IS NOT NULL)
    ) STRICT;
INSERT INTO "leases" VALUES('local-jx3a','local','gone','{"deadline_at":"2026-11-23T14:23:44.542590Z","max_price_usd_h":null,"budget_usd":null,"on_deadline":"keep","rescue_usd":null,"idle_h":null,"when_idle":"end","store":null,"recover":[]}','local-jx3a','{"kind":"local","directory":"/home/me/.gpu-tenant/boxes/local-jx3a/home"}',NULL,'2026-11-23T09:23:25.194251+00:00','2026-11-23T09:23:25.429471+00:00','2026-11-23T09:24:26.649833+00:00','2026-11-23T09:23:27.790019+00:00','/home/me/.gpu-tenant/kept/local-jx3a','gpu-tenant:ab9797:local-jx3a',NULL,'2026-11-23T09:23:27.691300+00:00',NULL,NULL,NULL);
CREATE TABLE passkey_ends(
      seq INTEGER PRIMARY KEY, passkey TEXT NOT NULL REFERENCES passkeys(id),
      signature TEXT NOT NULL REFERENCES signature_uses(code),
      asked_at TEXT NOT NULL, ends_at TEXT NOT NULL) STRICT;
CREATE TABLE passkey_ends_withdrawn(
      ending INTEGER PRIMARY KEY REFERENCES passkey_ends(seq),
      signature TEXT NOT NULL REFERENCES signature_uses(code), at TEXT NOT NULL) STRICT;
CREATE TABLE passkeys(
      id TEXT PRIMARY KEY, public_key TEXT NOT NULL, by TEXT NOT NULL,
      signature TEXT NOT NULL UNIQUE REFERENCES signature_uses(code), at TEXT NOT NULL) STRICT;
CREATE TABLE permits(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id), box_id TEXT NOT NULL,
      ground TEXT NOT NULL CHECK (ground IN ('verified','never_used','waived')),
      detail TEXT NOT NULL, at TEXT NOT NULL) STRICT;
INSERT INTO "permits" VALUES(1,'local-jx3a','local-jx3a','verified','{"seal": "0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813"}','2026-11-23T09:24:25.849788+00:00');
CREATE TABLE placements(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id), cell TEXT NOT NULL,
      lease_id TEXT NOT NULL REFERENCES leases(id), job TEXT NOT NULL, at TEXT NOT NULL,
      UNIQUE (lease_id, job)) STRICT;
CREATE TABLE quotes(
      id TEXT PRIMARY KEY, record TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;
CREATE TABLE rates(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      usd_h TEXT, at TEXT NOT NULL) STRICT;
INSERT INTO "rates" VALUES(1,'local-jx3a',NULL,'2026-11-23T09:23:25.429471+00:00');
CREATE TABLE receipts(
      lease_id TEXT PRIMARY KEY REFERENCES leases(id), record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
INSERT INTO "receipts" VALUES('local-jx3a','{"lease_id":"local-jx3a","provider":"local","box_id":"local-jx3a","ground":"verified","active_at":"2026-11-23T09:23:25.429471Z","destroy_asked_at":"2026-11-23T09:24:25.849788Z","first_absent_at":"2026-11-23T09:24:26.631414Z","second_absent_at":"2026-11-23T09:24:26.649833Z","lived_s":61.202,"cost_usd":null,"cost_least_usd":null,"cost_most_usd":null,"billed_usd":null,"counts":"compute and disk by the rate on record; bytes are not in it: their cost is unknown","kept_files":2,"kept_bytes":4,"kept_in":"/home/me/.gpu-tenant/kept/local-jx3a","formats":{"json":1},"not_proved":["1 file of no format we read: the bytes were proved by hash alone","bytes written outside the work directory and ~: nobody looked there"],"warnings":["log/train.log: empty"],"given_up":["rest.txt (1 file, 3 bytes)"],"left_behind":null}','2026-11-23T09:24:26.671868+00:00');
CREATE TABLE rehearsals(seq INTEGER PRIMARY KEY CHECK (seq = 1)) STRICT;
CREATE TABLE releases(
      placement INTEGER PRIMARY KEY REFERENCES placements(seq),
      why TEXT NOT NULL CHECK (why IN ('withdrawn','lost','again')), at TEXT NOT NULL) STRICT;
CREATE TABLE reports(
      seq INTEGER PRIMARY KEY, placement INTEGER NOT NULL REFERENCES placements(seq),
      word TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE rereads(
      placement INTEGER PRIMARY KEY REFERENCES placements(seq), at TEXT NOT NULL) STRICT;
CREATE TABLE scripts(sha256 TEXT PRIMARY KEY) STRICT;
INSERT INTO "scripts" VALUES('f505944879244bebb72403960228bf11ca4ae1dd3067e82bc5494f5ec9a17afa');
INSERT INTO "scripts" VALUES('c9596ba2858be000b527d4ed20c4684e0dcf2fefb14107dd6180910760d91bcd');
INSERT INTO "scripts" VALUES('58dd1ca3a8b6ded96188f07c0854346ac5233a11283a86fc8dd52480d16d6cfd');
INSERT INTO "scripts" VALUES('4c8738ff549a683efd4f481d9e310a7e1c90f28d6a98839bc9333978ae4ce780');
INSERT INTO "scripts" VALUES('d26b01d8076f6ba6b5df0b631fc058dc4c913c04e66ff2560face8833eafffdc');
INSERT INTO "scripts" VALUES('b23397657ed13fda849a839b0062243a96da415d1db88c52b3c58e38be3d2e9f');
INSERT INTO "scripts" VALUES('b6167d3b97c921bdd40f5ce2a11a07d4cbe32003bcad6d03ea1bc4a73dcfb049');
INSERT INTO "scripts" VALUES('4786ff254ac7d28d0052f39ef636cba00d9cf6d3cc985701c6afd071a1d516e7');
INSERT INTO "scripts" VALUES('719a9e456b0b156b9fb801aca0fcb737c1b72c0aa7e18a30087a4d0207470fc7');
INSERT INTO "scripts" VALUES('d19fb4ee15d4656b81ca686d39f2fbce8fac03bbdba5514ea703403480bc85db');
INSERT INTO "scripts" VALUES('4af08647e5d77806130e698a28778a64e1f93326a0b9a0aa549580700588f73f');
INSERT INTO "scripts" VALUES('a47046c181f8d71eca35204e0ddc0eae783d8793979a5632ced761cca0984750');
INSERT INTO "scripts" VALUES('b2dd87a908334251bc7c31a9644f5849e7b75ebacd370a149d0dce6bcc7afa8b');
INSERT INTO "scripts" VALUES('06c292a5fdc0b77f33c03d5766e18dfa352edd76343f410a8fce80cb933c3a1f');
CREATE TABLE seal_key(key TEXT PRIMARY KEY) STRICT;
INSERT INTO "seal_key" VALUES('6c33019a0df193a4528a12599915832469117e35bc9b6530053f2b9f74fd8a1b');
CREATE TABLE seals(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      digest TEXT NOT NULL, manifest TEXT NOT NULL, at TEXT NOT NULL) STRICT;
INSERT INTO "seals" VALUES(1,'local-jx3a','0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813','{"sealed_at":1795425847.7282798,"boot_id":"827e6614-5470-4963-aed8-9b2299218be2","since_ns":1795425810694211407,"digest":"0478f1de140464d11bcc950f15fe470f478fbaf87e5af78a97c69161159c6813","entries":[{"name":"log/train.log","at":"/home/me/.gpu-tenant/boxes/local-jx3a/home/gpu-tenant/local-jx3a/caretaker/jobs/train/log","kind":"file","class":"log","size":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","mtime_ns":1795425820393280952,"target":null},{"name":"work/out/a.json","at":"/home/me/.gpu-tenant/boxes/local-jx3a/home/gpu-tenant/local-jx3a/work/out/a.json","kind":"file","class":"artifact","size":4,"sha256":"acc07b62f23f458923737c4cd4a66bd05d1e71eb4f384003baaf2dcc760d6349","mtime_ns":1795425820621280958,"target":null}],"unclaimed":{"count":0,"bytes":0,"largest":[]},"discarded":{"count":1,"bytes":3,"patterns":[{"count":1,"bytes":3,"pattern":"rest.txt"}]},"pushed":{"count":1,"bytes":11},"problems":[],"unmatched":[],"empty":{"count":0,"first":[]},"elsewhere":null}','2026-11-23T09:24:07.962143+00:00');
CREATE TABLE sent(
      lease_id TEXT NOT NULL REFERENCES leases(id), name TEXT NOT NULL, size_bytes INTEGER NOT NULL,
      sha256 TEXT NOT NULL, PRIMARY KEY (lease_id, name, size_bytes, sha256)) STRICT, WITHOUT ROWID;
INSERT INTO "sent" VALUES('local-jx3a','a.py',11,'3ea9650e46227359de69ff326ae334336c559061ed6eca0807da33e156ea37f4');
CREATE TABLE sent_before(lease_id TEXT PRIMARY KEY REFERENCES leases(id)) STRICT;
CREATE TABLE settlements(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id),
      digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE sightings(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      listed TEXT NOT NULL CHECK (listed IN ('listed','omitted')), at TEXT NOT NULL) STRICT;
INSERT INTO "sightings" VALUES(1,'local-jx3a','listed','2026-11-23T09:23:25.443514+00:00');
INSERT INTO "sightings" VALUES(2,'local-jx3a','omitted','2026-11-23T09:24:26.631414+00:00');
INSERT INTO "sightings" VALUES(3,'local-jx3a','omitted','2026-11-23T09:24:26.649833+00:00');
CREATE TABLE signature_requests(
      code TEXT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, digest TEXT NOT NULL,
      asked_at TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;
CREATE TABLE signature_uses(
      code TEXT PRIMARY KEY REFERENCES signatures(code), at TEXT NOT NULL) STRICT;
CREATE TABLE signature_words(
      seq INTEGER PRIMARY KEY, code TEXT NOT NULL REFERENCES signature_requests(code),
      would TEXT NOT NULL, words TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE signatures(
      seq INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE REFERENCES signature_requests(code),
      shown TEXT NOT NULL, by TEXT NOT NULL,
      form TEXT NOT NULL CHECK (form IN ('terminal','page','passkey')),
      proof TEXT, at TEXT NOT NULL, CHECK (form <> 'passkey' OR proof IS NOT NULL)) STRICT;
CREATE TABLE since(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      since_ns INTEGER NOT NULL) STRICT;
INSERT INTO "since" VALUES(1,'local-jx3a',1795425810694211407);
INSERT INTO "since" VALUES(2,'local-jx3a',1795425820085280945);
CREATE TABLE smokes(id TEXT PRIMARY KEY, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE TABLE sweep_leases(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id),
      lease_id TEXT NOT NULL REFERENCES leases(id), at TEXT NOT NULL,
      UNIQUE (sweep_id, lease_id)) STRICT;
CREATE TABLE sweeps(
      id TEXT PRIMARY KEY, digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX one_live_lease_a_box ON leases(provider, box_id)
      WHERE state IN ('intended','active','terminating');
CREATE INDEX events_of ON events(lease_id, seq);
CREATE INDEX sightings_of ON sightings(lease_id, seq);
CREATE INDEX rates_of ON rates(lease_id, seq);
CREATE UNIQUE INDEX one_open_alarm_a_thing ON alarms(coalesce(lease_id, ''), key)
      WHERE ended_at IS NULL;
CREATE INDEX fleets_by_request ON fleets(request, seq);
CREATE INDEX leases_of_a_fleet ON leases(fleet) WHERE fleet IS NOT NULL;
CREATE UNIQUE INDEX one_open_intent_a_fleet ON leases(fleet)
      WHERE fleet IS NOT NULL AND recovers IS NULL AND state = 'intended';
CREATE INDEX sweeps_by_digest ON sweeps(digest);
CREATE INDEX sweeps_of_a_lease ON sweep_leases(lease_id);
CREATE INDEX placements_of ON placements(sweep_id, cell);
CREATE INDEX reports_of ON reports(placement, seq);
CREATE INDEX signature_requests_for ON signature_requests(kind, subject, digest);
CREATE INDEX signature_words_of ON signature_words(code, seq);
CREATE INDEX live_leases_by_quote ON leases(json_extract(quote, '$.id'))
      WHERE quote IS NOT NULL AND state IN ('intended','active','terminating');
CREATE INDEX lost_on_a_box ON leases(provider, box_id) WHERE state = 'lost';
CREATE INDEX askings_of ON askings(lease_id, seq);
CREATE INDEX leases_by_end ON leases(ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX since_of ON since(lease_id);
CREATE TRIGGER a_lease_begins_as_an_intent BEFORE INSERT ON leases
      WHEN NEW.state <> 'intended' OR NEW.box_id IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a lease begins as an intent'); END;
CREATE TRIGGER no_destroy_without_a_permit BEFORE UPDATE ON leases
      WHEN NEW.state IN ('terminating','gone') AND OLD.state <> NEW.state AND NOT EXISTS (
        SELECT 1 FROM permits WHERE lease_id = NEW.id AND box_id = NEW.box_id)
      BEGIN SELECT raise(ABORT, 'law: no permit is filed for this box'); END;
CREATE TRIGGER no_end_without_a_receipt BEFORE UPDATE ON leases
      WHEN NEW.state = 'gone' AND OLD.state <> 'gone' AND NOT EXISTS (
        SELECT 1 FROM receipts WHERE lease_id = NEW.id)
      BEGIN SELECT raise(ABORT, 'law: no receipt is filed'); END;
CREATE TRIGGER gone_is_seen_twice BEFORE INSERT ON receipts
      WHEN 2 > (SELECT count(*) FROM sightings WHERE lease_id = NEW.lease_id AND listed = 'omitted'
        AND seq > (SELECT coalesce(max(seq), 0) FROM sightings
                   WHERE lease_id = NEW.lease_id AND listed = 'listed'))
      BEGIN SELECT raise(ABORT, 'law: gone is believed when the list has omitted the box twice'); END;
CREATE TRIGGER never_used_means_untouched BEFORE INSERT ON permits
      WHEN NEW.ground = 'never_used' AND EXISTS (
        SELECT 1 FROM leases WHERE id = NEW.lease_id AND touched_at IS NOT NULL)
      BEGIN SELECT raise(ABORT, 'law: this box was used'); END;
CREATE TRIGGER a_lease_keeps_its_box BEFORE UPDATE OF box_id ON leases
      WHEN OLD.box_id IS NOT NULL AND NEW.box_id IS NOT OLD.box_id
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its box'); END;
CREATE TRIGGER used_stays_used BEFORE UPDATE OF touched_at ON leases
      WHEN OLD.touched_at IS NOT NULL AND NEW.touched_at IS NOT OLD.touched_at
      BEGIN SELECT raise(ABORT, 'law: used stays used'); END;
CREATE TRIGGER leases_are_never_replaced BEFORE INSERT ON leases
      WHEN EXISTS (SELECT 1 FROM leases WHERE id = NEW.id)
      BEGIN SELECT raise(ABORT, 'law: leases are never replaced'); END;
CREATE TRIGGER leases_are_never_deleted BEFORE DELETE ON leases
      BEGIN SELECT raise(ABORT, 'law: leases are never deleted'); END;
CREATE TRIGGER a_lease_keeps_its_provider BEFORE UPDATE OF id, provider ON leases
      WHEN NEW.id IS NOT OLD.id OR NEW.provider IS NOT OLD.provider
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its provider'); END;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events BEGIN SELECT raise(ABORT, 'law: events are never changed'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events BEGIN SELECT raise(ABORT, 'law: events are never deleted'); END;
CREATE TRIGGER permits_are_never_changed BEFORE UPDATE ON permits BEGIN SELECT raise(ABORT, 'law: permits are never changed'); END;
CREATE TRIGGER permits_are_never_deleted BEFORE DELETE ON permits BEGIN SELECT raise(ABORT, 'law: permits are never deleted'); END;
CREATE TRIGGER receipts_are_never_changed BEFORE UPDATE ON receipts BEGIN SELECT raise(ABORT, 'law: receipts are never changed'); END;
CREATE TRIGGER receipts_are_never_deleted BEFORE DELETE ON receipts BEGIN SELECT raise(ABORT, 'law: receipts are never deleted'); END;
CREATE TRIGGER seals_are_never_changed BEFORE UPDATE ON seals BEGIN SELECT raise(ABORT, 'law: seals are never changed'); END;
CREATE TRIGGER seals_are_never_deleted BEFORE DELETE ON seals BEGIN SELECT raise(ABORT, 'law: seals are never deleted'); END;
CREATE TRIGGER evidence_are_never_changed BEFORE UPDATE ON evidence BEGIN SELECT raise(ABORT, 'law: evidence are never changed'); END;
CREATE TRIGGER evidence_are_never_deleted BEFORE DELETE ON evidence BEGIN SELECT raise(ABORT, 'law: evidence are never deleted'); END;
CREATE TRIGGER sightings_are_never_changed BEFORE UPDATE ON sightings BEGIN SELECT raise(ABORT, 'law: sightings are never changed'); END;
CREATE TRIGGER sightings_are_never_deleted BEFORE DELETE ON sightings BEGIN SELECT raise(ABORT, 'law: sightings are never deleted'); END;
CREATE TRIGGER a_lease_has_a_mark BEFORE INSERT ON leases WHEN NEW.mark = ''
      BEGIN SELECT raise(ABORT, 'law: a lease has a mark'); END;
CREATE TRIGGER a_lease_keeps_its_mark BEFORE UPDATE OF mark ON leases
      WHEN NEW.mark IS NOT OLD.mark
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its mark'); END;
CREATE TRIGGER rates_are_never_changed BEFORE UPDATE ON rates BEGIN SELECT raise(ABORT, 'law: rates are never changed'); END;
CREATE TRIGGER rates_are_never_deleted BEFORE DELETE ON rates BEGIN SELECT raise(ABORT, 'law: rates are never deleted'); END;
CREATE TRIGGER events_are_never_replaced BEFORE INSERT ON events WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: events are never replaced'); END;
CREATE TRIGGER permits_are_never_replaced BEFORE INSERT ON permits WHEN EXISTS (SELECT 1 FROM permits WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: permits are never replaced'); END;
CREATE TRIGGER seals_are_never_replaced BEFORE INSERT ON seals WHEN EXISTS (SELECT 1 FROM seals WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: seals are never replaced'); END;
CREATE TRIGGER evidence_are_never_replaced BEFORE INSERT ON evidence WHEN EXISTS (SELECT 1 FROM evidence WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: evidence are never replaced'); END;
CREATE TRIGGER sightings_are_never_replaced BEFORE INSERT ON sightings WHEN EXISTS (SELECT 1 FROM sightings WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: sightings are never replaced'); END;
CREATE TRIGGER rates_are_never_replaced BEFORE INSERT ON rates WHEN EXISTS (SELECT 1 FROM rates WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: rates are never replaced'); END;
CREATE TRIGGER receipts_are_never_replaced BEFORE INSERT ON receipts WHEN EXISTS (SELECT 1 FROM receipts WHERE lease_id = NEW.lease_id) BEGIN SELECT raise(ABORT, 'law: receipts are never replaced'); END;
CREATE TRIGGER no_waiver_without_a_signature BEFORE UPDATE OF terms ON leases
      WHEN json_extract(NEW.terms, '$.on_deadline') = 'waive' AND NOT EXISTS (
        SELECT 1 FROM events WHERE lease_id = NEW.id AND kind = 'waived ahead' AND seq >
          (SELECT coalesce(max(seq), 0) FROM events WHERE lease_id = NEW.id AND kind = 'terms'))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
CREATE TRIGGER a_lease_begins_without_a_waiver BEFORE INSERT ON leases
      WHEN json_extract(NEW.terms, '$.on_deadline') = 'waive'
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
CREATE TRIGGER a_lease_keeps_what_it_recovers BEFORE UPDATE OF recovers ON leases
      WHEN OLD.recovers IS NOT NULL AND NEW.recovers IS NOT OLD.recovers
      BEGIN SELECT raise(ABORT, 'law: a lease keeps what it recovers'); END;
CREATE TRIGGER alarms_are_never_deleted BEFORE DELETE ON alarms
      BEGIN SELECT raise(ABORT, 'law: alarms are never deleted'); END;
CREATE TRIGGER an_open_alarm_only_grows_louder BEFORE UPDATE OF level ON alarms
      WHEN NEW.level < OLD.level
      BEGIN SELECT raise(ABORT, 'law: an open alarm only grows louder'); END;
CREATE TRIGGER an_ended_alarm_stays_ended BEFORE UPDATE ON alarms
      WHEN OLD.ended_at IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: an ended alarm stays ended'); END;
CREATE TRIGGER alarms_are_never_replaced BEFORE INSERT ON alarms WHEN EXISTS (SELECT 1 FROM alarms WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: alarms are never replaced'); END;
CREATE TRIGGER a_lease_keeps_its_fleet BEFORE UPDATE OF fleet ON leases
      WHEN NEW.fleet IS NOT OLD.fleet
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its fleet'); END;
CREATE TRIGGER fleets_are_never_changed BEFORE UPDATE ON fleets BEGIN SELECT raise(ABORT, 'law: fleets are never changed'); END;
CREATE TRIGGER fleets_are_never_deleted BEFORE DELETE ON fleets BEGIN SELECT raise(ABORT, 'law: fleets are never deleted'); END;
CREATE TRIGGER fleets_are_never_replaced BEFORE INSERT ON fleets WHEN EXISTS (SELECT 1 FROM fleets WHERE id = NEW.id) BEGIN SELECT raise(ABORT, 'law: fleets are never replaced'); END;
CREATE TRIGGER a_cell_is_in_one_place BEFORE INSERT ON placements
      WHEN EXISTS (SELECT 1 FROM placements p WHERE sweep_id = NEW.sweep_id AND cell = NEW.cell
        AND NOT EXISTS (SELECT 1 FROM releases WHERE placement = p.seq))
      BEGIN SELECT raise(ABORT, 'law: a cell is in one place at a time'); END;
CREATE TRIGGER what_was_given_up_is_put_nowhere BEFORE INSERT ON placements
      WHEN EXISTS (SELECT 1 FROM given_up WHERE sweep_id = NEW.sweep_id AND cell = NEW.cell)
      BEGIN SELECT raise(ABORT, 'law: what was given up is put nowhere'); END;
CREATE TRIGGER only_a_lost_box_loses_its_cells BEFORE INSERT ON releases
      WHEN NEW.why = 'lost' AND 'lost' <> (SELECT state FROM leases WHERE id =
        (SELECT lease_id FROM placements WHERE seq = NEW.placement))
        AND 'gone' <> (SELECT state FROM leases WHERE id =
        (SELECT lease_id FROM placements WHERE seq = NEW.placement))
      BEGIN SELECT raise(ABORT, 'law: a box that may exist keeps its cells'); END;
CREATE TRIGGER what_ran_was_not_withdrawn BEFORE INSERT ON releases
      WHEN NEW.why = 'withdrawn' AND EXISTS (SELECT 1 FROM reports WHERE placement = NEW.placement
        AND word NOT IN ('queued','needs_env','withdrawn'))
      BEGIN SELECT raise(ABORT, 'law: what has begun is not withdrawn'); END;
CREATE TRIGGER what_may_run_is_not_begun_again BEFORE INSERT ON releases
      WHEN NEW.why = 'again' AND NOT EXISTS (SELECT 1 FROM reports WHERE seq =
        (SELECT max(seq) FROM reports WHERE placement = NEW.placement)
        AND word IN ('finished','failed','killed','stopped','withdrawn'))
      BEGIN SELECT raise(ABORT, 'law: what may still run is not begun again'); END;
CREATE TRIGGER sweeps_are_never_changed BEFORE UPDATE ON sweeps BEGIN SELECT raise(ABORT, 'law: sweeps are never changed'); END;
CREATE TRIGGER sweeps_are_never_deleted BEFORE DELETE ON sweeps BEGIN SELECT raise(ABORT, 'law: sweeps are never deleted'); END;
CREATE TRIGGER sweep_leases_are_never_changed BEFORE UPDATE ON sweep_leases BEGIN SELECT raise(ABORT, 'law: sweep_leases are never changed'); END;
CREATE TRIGGER sweep_leases_are_never_deleted BEFORE DELETE ON sweep_leases BEGIN SELECT raise(ABORT, 'law: sweep_leases are never deleted'); END;
CREATE TRIGGER placements_are_never_changed BEFORE UPDATE ON placements BEGIN SELECT raise(ABORT, 'law: placements are never changed'); END;
CREATE TRIGGER placements_are_never_deleted BEFORE DELETE ON placements BEGIN SELECT raise(ABORT, 'law: placements are never deleted'); END;
CREATE TRIGGER releases_are_never_changed BEFORE UPDATE ON releases BEGIN SELECT raise(ABORT, 'law: releases are never changed'); END;
CREATE TRIGGER releases_are_never_deleted BEFORE DELETE ON releases BEGIN SELECT raise(ABORT, 'law: releases are never deleted'); END;
CREATE TRIGGER reports_are_never_changed BEFORE UPDATE ON reports BEGIN SELECT raise(ABORT, 'law: reports are never changed'); END;
CREATE TRIGGER reports_are_never_deleted BEFORE DELETE ON reports BEGIN SELECT raise(ABORT, 'law: reports are never deleted'); END;
CREATE TRIGGER settlements_are_never_changed BEFORE UPDATE ON settlements BEGIN SELECT raise(ABORT, 'law: settlements are never changed'); END;
CREATE TRIGGER settlements_are_never_deleted BEFORE DELETE ON settlements BEGIN SELECT raise(ABORT, 'law: settlements are never deleted'); END;
CREATE TRIGGER rereads_are_never_changed BEFORE UPDATE ON rereads BEGIN SELECT raise(ABORT, 'law: rereads are never changed'); END;
CREATE TRIGGER rereads_are_never_deleted BEFORE DELETE ON rereads BEGIN SELECT raise(ABORT, 'law: rereads are never deleted'); END;
CREATE TRIGGER given_up_are_never_changed BEFORE UPDATE ON given_up BEGIN SELECT raise(ABORT, 'law: given_up are never changed'); END;
CREATE TRIGGER given_up_are_never_deleted BEFORE DELETE ON given_up BEGIN SELECT raise(ABORT, 'law: given_up are never deleted'); END;
CREATE TRIGGER sweeps_are_never_replaced BEFORE INSERT ON sweeps WHEN EXISTS (SELECT 1 FROM sweeps WHERE id = NEW.id) BEGIN SELECT raise(ABORT, 'law: sweeps are never replaced'); END;
CREATE TRIGGER releases_are_never_replaced BEFORE INSERT ON releases WHEN EXISTS (SELECT 1 FROM releases WHERE placement = NEW.placement) BEGIN SELECT raise(ABORT, 'law: releases are never replaced'); END;
CREATE TRIGGER rereads_are_never_replaced BEFORE INSERT ON rereads WHEN EXISTS (SELECT 1 FROM rereads WHERE placement = NEW.placement) BEGIN SELECT raise(ABORT, 'law: rereads are never replaced'); END;
CREATE TRIGGER sweep_leases_are_never_replaced BEFORE INSERT ON sweep_leases WHEN EXISTS (SELECT 1 FROM sweep_leases WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: sweep_leases are never replaced'); END;
CREATE TRIGGER placements_are_never_replaced BEFORE INSERT ON placements WHEN EXISTS (SELECT 1 FROM placements WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: placements are never replaced'); END;
CREATE TRIGGER reports_are_never_replaced BEFORE INSERT ON reports WHEN EXISTS (SELECT 1 FROM reports WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: reports are never replaced'); END;
CREATE TRIGGER settlements_are_never_replaced BEFORE INSERT ON settlements WHEN EXISTS (SELECT 1 FROM settlements WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: settlements are never replaced'); END;
CREATE TRIGGER given_up_are_never_replaced BEFORE INSERT ON given_up WHEN EXISTS (SELECT 1 FROM given_up WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: given_up are never replaced'); END;
CREATE TRIGGER nobody_signs_for_what_waits_no_more BEFORE INSERT ON signatures
      WHEN NOT EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.code AND expires_at > NEW.at)
      BEGIN SELECT raise(ABORT, 'law: that waits for no signature'); END;
CREATE TRIGGER signature_requests_are_never_changed BEFORE UPDATE ON signature_requests BEGIN SELECT raise(ABORT, 'law: signature_requests are never changed'); END;
CREATE TRIGGER signature_requests_are_never_deleted BEFORE DELETE ON signature_requests BEGIN SELECT raise(ABORT, 'law: signature_requests are never deleted'); END;
CREATE TRIGGER signature_words_are_never_changed BEFORE UPDATE ON signature_words BEGIN SELECT raise(ABORT, 'law: signature_words are never changed'); END;
CREATE TRIGGER signature_words_are_never_deleted BEFORE DELETE ON signature_words BEGIN SELECT raise(ABORT, 'law: signature_words are never deleted'); END;
CREATE TRIGGER signatures_are_never_changed BEFORE UPDATE ON signatures BEGIN SELECT raise(ABORT, 'law: signatures are never changed'); END;
CREATE TRIGGER signatures_are_never_deleted BEFORE DELETE ON signatures BEGIN SELECT raise(ABORT, 'law: signatures are never deleted'); END;
CREATE TRIGGER signature_uses_are_never_changed BEFORE UPDATE ON signature_uses BEGIN SELECT raise(ABORT, 'law: signature_uses are never changed'); END;
CREATE TRIGGER signature_uses_are_never_deleted BEFORE DELETE ON signature_uses BEGIN SELECT raise(ABORT, 'law: signature_uses are never deleted'); END;
CREATE TRIGGER signature_requests_are_never_replaced BEFORE INSERT ON signature_requests WHEN EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.code) BEGIN SELECT raise(ABORT, 'law: signature_requests are never replaced'); END;
CREATE TRIGGER signatures_are_never_replaced BEFORE INSERT ON signatures WHEN EXISTS (SELECT 1 FROM signatures WHERE code = NEW.code) BEGIN SELECT raise(ABORT, 'law: signatures are never replaced'); END;
CREATE TRIGGER signature_uses_are_never_replaced BEFORE INSERT ON signature_uses WHEN EXISTS (SELECT 1 FROM signature_uses WHERE code = NEW.code) BEGIN SELECT raise(ABORT, 'law: signature_uses are never replaced'); END;
CREATE TRIGGER signature_words_are_never_replaced BEFORE INSERT ON signature_words WHEN EXISTS (SELECT 1 FROM signature_words WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: signature_words are never replaced'); END;
CREATE TRIGGER a_quote_rents_one_box BEFORE INSERT ON leases
      WHEN NEW.quote IS NOT NULL AND EXISTS (SELECT 1 FROM leases WHERE quote IS NOT NULL
        AND state IN ('intended','active','terminating')
        AND json_extract(quote, '$.id') = json_extract(NEW.quote, '$.id')
        AND (fleet IS NULL OR NEW.fleet IS NULL OR fleet <> NEW.fleet))
      BEGIN SELECT raise(ABORT, 'law: a quote rents one box'); END;
CREATE TRIGGER a_lease_only_moves_on BEFORE UPDATE OF state ON leases
      WHEN OLD.state <> NEW.state AND NOT (
        (OLD.state = 'intended' AND NEW.state IN ('active','void'))
        OR (OLD.state = 'active' AND NEW.state IN ('terminating','lost'))
        OR (OLD.state = 'terminating' AND NEW.state = 'gone')
        OR (OLD.state = 'lost' AND NEW.state = 'active'))
      BEGIN SELECT raise(ABORT, 'law: a lease only moves on'); END;
CREATE TRIGGER a_lost_lease_comes_back_with_its_box BEFORE UPDATE OF state ON leases
      WHEN OLD.state = 'lost' AND NEW.state = 'active' AND 'listed' IS NOT (
        SELECT listed FROM sightings WHERE lease_id = NEW.id ORDER BY seq DESC LIMIT 1)
      BEGIN SELECT raise(ABORT, 'law: only a box that is listed was not lost'); END;
CREATE TRIGGER real_leases_are_never_rehearsed BEFORE INSERT ON rehearsals
      WHEN EXISTS (SELECT 1 FROM leases)
      BEGIN SELECT raise(ABORT, 'law: a ledger with leases never becomes a rehearsal'); END;
CREATE TRIGGER rehearsals_are_never_changed BEFORE UPDATE ON rehearsals BEGIN SELECT raise(ABORT, 'law: rehearsals are never changed'); END;
CREATE TRIGGER rehearsals_are_never_deleted BEFORE DELETE ON rehearsals BEGIN SELECT raise(ABORT, 'law: rehearsals are never deleted'); END;
CREATE TRIGGER rehearsals_are_never_replaced BEFORE INSERT ON rehearsals WHEN EXISTS (SELECT 1 FROM rehearsals WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: rehearsals are never replaced'); END;
CREATE TRIGGER askings_are_never_changed BEFORE UPDATE ON askings BEGIN SELECT raise(ABORT, 'law: askings are never changed'); END;
CREATE TRIGGER askings_are_never_deleted BEFORE DELETE ON askings BEGIN SELECT raise(ABORT, 'law: askings are never deleted'); END;
CREATE TRIGGER askings_are_never_replaced BEFORE INSERT ON askings WHEN EXISTS (SELECT 1 FROM askings WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: askings are never replaced'); END;
CREATE TRIGGER only_a_person_waives BEFORE INSERT ON permits
      WHEN NEW.ground = 'waived' AND NOT EXISTS (
        SELECT 1 FROM signature_uses u JOIN signature_requests r ON r.code = u.code
        WHERE u.code = json_extract(NEW.detail, '$.signature')
          AND r.subject = NEW.lease_id AND r.kind IN ('waive','waive_ahead'))
      AND NOT (json_extract(NEW.detail, '$.signature') = 'waived ahead' AND EXISTS (
        SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind = 'waived ahead'
          AND json_extract(detail, '$.signature') IS NULL))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
CREATE TRIGGER only_a_person_waives_ahead_or_attests BEFORE INSERT ON events
      WHEN NEW.kind IN ('waived ahead','attested') AND NOT EXISTS (
        SELECT 1 FROM signature_uses u JOIN signature_requests r ON r.code = u.code
        WHERE u.code = json_extract(NEW.detail, '$.signature') AND r.subject = NEW.lease_id
          AND r.kind = iif(NEW.kind = 'attested', 'attest', 'waive_ahead'))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
CREATE TRIGGER where_there_is_a_passkey_it_signs BEFORE INSERT ON signatures
      WHEN NEW.form <> 'passkey'
      AND 'lost_passkey' <> (SELECT kind FROM signature_requests WHERE code = NEW.code)
      AND EXISTS (SELECT 1 FROM passkeys p WHERE NOT EXISTS (
        SELECT 1 FROM passkey_ends e WHERE e.passkey = p.id AND e.ends_at <= NEW.at
          AND NOT EXISTS (SELECT 1 FROM passkey_ends_withdrawn WHERE ending = e.seq)))
      BEGIN SELECT raise(ABORT, 'law: a passkey signs here'); END;
CREATE TRIGGER a_passkey_is_signed_for BEFORE INSERT ON passkeys
      WHEN NOT EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.signature AND kind = 'passkey')
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
CREATE TRIGGER who_has_lost_a_passkey_waits_a_day BEFORE INSERT ON passkey_ends
      WHEN julianday(NEW.ends_at) - julianday(NEW.asked_at) < 0.999 AND NOT EXISTS (
        SELECT 1 FROM signatures WHERE code = NEW.signature AND form = 'passkey')
      BEGIN SELECT raise(ABORT, 'law: a passkey that is lost ends after a day'); END;
CREATE TRIGGER passkeys_are_never_changed BEFORE UPDATE ON passkeys BEGIN SELECT raise(ABORT, 'law: passkeys are never changed'); END;
CREATE TRIGGER passkeys_are_never_deleted BEFORE DELETE ON passkeys BEGIN SELECT raise(ABORT, 'law: passkeys are never deleted'); END;
CREATE TRIGGER passkey_ends_are_never_changed BEFORE UPDATE ON passkey_ends BEGIN SELECT raise(ABORT, 'law: passkey_ends are never changed'); END;
CREATE TRIGGER passkey_ends_are_never_deleted BEFORE DELETE ON passkey_ends BEGIN SELECT raise(ABORT, 'law: passkey_ends are never deleted'); END;
CREATE TRIGGER passkey_ends_withdrawn_are_never_changed BEFORE UPDATE ON passkey_ends_withdrawn BEGIN SELECT raise(ABORT, 'law: passkey_ends_withdrawn are never changed'); END;
CREATE TRIGGER passkey_ends_withdrawn_are_never_deleted BEFORE DELETE ON passkey_ends_withdrawn BEGIN SELECT raise(ABORT, 'law: passkey_ends_withdrawn are never deleted'); END;
CREATE TRIGGER passkeys_are_never_replaced BEFORE INSERT ON passkeys WHEN EXISTS (SELECT 1 FROM passkeys WHERE id = NEW.id) BEGIN SELECT raise(ABORT, 'law: passkeys are never replaced'); END;
CREATE TRIGGER passkey_ends_are_never_replaced BEFORE INSERT ON passkey_ends WHEN EXISTS (SELECT 1 FROM passkey_ends WHERE seq = NEW.seq) BEGIN SELECT raise(ABORT, 'law: passkey_ends are never replaced'); END;
CREATE TRIGGER passkey_ends_withdrawn_are_never_replaced BEFORE INSERT ON passkey_ends_withdrawn WHEN EXISTS (SELECT 1 FROM passkey_ends_withdrawn WHERE ending = NEW.ending) BEGIN SELECT raise(ABORT, 'law: passkey_ends_withdrawn are never replaced'); END;
CREATE TRIGGER since_are_never_changed BEFORE UPDATE ON since BEGIN SELECT raise(ABORT, 'law: since are never changed'); END;
CREATE TRIGGER since_are_never_deleted BEFORE DELETE ON since BEGIN SELECT raise(ABORT, 'law: since are never deleted'); END;
CREATE TRIGGER never_used_means_looked_at BEFORE INSERT ON permits
      WHEN NEW.ground = 'never_used' AND EXISTS (
        SELECT 1 FROM leases WHERE id = NEW.lease_id AND provider <> 'own')
      AND EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind IN ('ready','marked'))
      AND NOT EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind = 'looked' AND seq >
        (SELECT coalesce(max(seq), 0) FROM events WHERE lease_id = NEW.lease_id
          AND kind IN ('ready','resumed','parked','permitted')))
      BEGIN SELECT raise(ABORT, 'law: nobody has looked whether this box was used'); END;
COMMIT;
