-- A store as version 0.1.0 made it, before there were migrations (sqlite3's .dump).
BEGIN TRANSACTION;
CREATE TABLE records (
	id VARCHAR(32) NOT NULL, 
	cell TEXT NOT NULL, 
	image TEXT NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	finished VARCHAR(40) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "records" VALUES('d72a4fdc7bac3413f91b2cde30d01c75','tf2.21.0-cpu-py31@no-gpu','tf2.21.0-cpu-py31','unproven','key1','2026-01-01T00:00:01+00:00','{"base": null, "cell": "tf2.21.0-cpu-py31@no-gpu", "checks": [], "engine": "venv", "finished": "2026-01-01T00:00:01+00:00", "host": {}, "host_class": "no-gpu", "id": "d72a4fdc7bac3413f91b2cde30d01c75", "image": "tf2.21.0-cpu-py31", "image_digest": null, "key": "key1", "lock_digest": "sha256:00", "origin": "here", "probe_version": "1+abc", "reason": "no GPU", "report": {"text": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "\u00e9": "\u00fc\u2028"}, "started": "2026-01-01T00:00:00+00:00", "verdict": "unproven", "versions": {}}');
INSERT INTO "records" VALUES('1a105d058ecb939a1a86a47d6ede9442','tf2.21.0-cpu-py32@no-gpu','tf2.21.0-cpu-py32','failed','key2','2026-01-01T00:00:02+00:00','{"base": null, "cell": "tf2.21.0-cpu-py32@no-gpu", "checks": [], "engine": "venv", "finished": "2026-01-01T00:00:02+00:00", "host": {}, "host_class": "no-gpu", "id": "1a105d058ecb939a1a86a47d6ede9442", "image": "tf2.21.0-cpu-py32", "image_digest": null, "key": "key2", "lock_digest": "sha256:00", "origin": "here", "probe_version": "1+abc", "reason": "cudnn_load: cuDNN does not load", "report": {"text": "nul \u0000, half \ud83d, \u00e9"}, "started": "2026-01-01T00:00:00+00:00", "verdict": "failed", "versions": {}}');
INSERT INTO "records" VALUES('02a9b54de0e62be67e339babe1c52655','tf2.21.0-cpu-py33@no-gpu','tf2.21.0-cpu-py33','unproven','','2026-01-01T00:00:03+00:00','{"base": null, "cell": "tf2.21.0-cpu-py33@no-gpu", "checks": [], "engine": "venv", "finished": "2026-01-01T00:00:03+00:00", "host": {}, "host_class": "no-gpu", "id": "02a9b54de0e62be67e339babe1c52655", "image": "tf2.21.0-cpu-py33", "image_digest": null, "key": "", "lock_digest": "sha256:00", "origin": "here", "probe_version": "1+abc", "reason": "no GPU", "report": null, "started": "2026-01-01T00:00:00+00:00", "verdict": "unproven", "versions": {}}');
CREATE INDEX records_by_cell ON records (cell, finished);
CREATE INDEX records_by_key ON records ("key", finished);
CREATE TRIGGER records_no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
COMMIT;
