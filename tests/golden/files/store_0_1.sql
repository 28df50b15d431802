BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE zeus_asks (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	PRIMARY KEY (job_id, "key"), 
	FOREIGN KEY(job_id) REFERENCES zeus_jobs (id)
);
CREATE TABLE zeus_events (
	job_id TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	event TEXT NOT NULL, 
	PRIMARY KEY (job_id, sequence), 
	FOREIGN KEY(job_id) REFERENCES zeus_jobs (id)
);
INSERT INTO "zeus_events" VALUES('asr',2,'{"kind":"profiled","version":1,"sequence":2,"batch_size":16,"gpu_model":"V100","joules":1500.0,"seconds":12.0,"max_watts":250.0}');
INSERT INTO "zeus_events" VALUES('asr',16,'{"kind":"pardoned","version":1,"sequence":16,"batch_size":8}');
CREATE TABLE zeus_jobs (
	id TEXT NOT NULL, 
	generation TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	trials INTEGER NOT NULL, 
	recurrences INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "zeus_jobs" VALUES('asr','4506c76dd3cd46f280060dabd66ff955',17,8,6,'{"policy_version":1,"revision":2,"since":0,"at":"2026-11-16T03:40:04.681808+00:00","excused":[],"etas":[[9,0.5]],"spec":{"kind":"job","version":1,"job_id":"asr","job_id_prefix":"asr","batch_sizes":[8,16,32],"default_batch_size":16,"eta_knob":0.8,"beta_knob":2.0,"target_metric":0.5,"higher_is_better_metric":true,"max_epochs":10,"num_pruning_rounds":2,"window_size":0,"mab_prior_mean":0.0,"mab_prior_precision":0.0,"mab_num_explorations":2,"mab_seed":7,"policy":"paper","power_limits":[]}}');
INSERT INTO "zeus_jobs" VALUES('images','6594759d296c40cf8a497c26b6f2e61a',6,3,3,'{"policy_version":1,"revision":1,"since":0,"at":"2026-11-16T03:40:04.685477+00:00","excused":[],"etas":[],"spec":{"kind":"job","version":1,"job_id":"images","job_id_prefix":"images","batch_sizes":[64,128],"default_batch_size":64,"eta_knob":0.5,"beta_knob":2.0,"target_metric":0.5,"higher_is_better_metric":true,"max_epochs":5,"num_pruning_rounds":2,"window_size":0,"mab_prior_mean":0.0,"mab_prior_precision":0.0,"mab_num_explorations":2,"mab_seed":3,"policy":"structured","power_limits":[]}}');
CREATE TABLE zeus_places (
	job_id TEXT NOT NULL, 
	gpu_model TEXT NOT NULL, 
	max_watts FLOAT NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES zeus_jobs (id)
);
INSERT INTO "zeus_places" VALUES('images','2 x V100',500.0);
CREATE TABLE zeus_profiles (
	job TEXT NOT NULL, 
	batch_size INTEGER NOT NULL, 
	gpu_model TEXT NOT NULL, 
	gpu_count INTEGER NOT NULL, 
	profile TEXT NOT NULL, 
	PRIMARY KEY (job, batch_size, gpu_model, gpu_count)
);
INSERT INTO "zeus_profiles" VALUES('asr',16,'V100',1,'{"kind":"profile","version":1,"measurements":[{"power_limit":250,"energy":2000.0,"time":10.0,"steps":40},{"power_limit":150,"energy":1500.0,"time":12.0,"steps":40}],"unmeasured":[200]}');
CREATE TABLE zeus_revisions (
	job_id TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	PRIMARY KEY (job_id, revision), 
	FOREIGN KEY(job_id) REFERENCES zeus_jobs (id)
);
INSERT INTO "zeus_revisions" VALUES('asr',1,'{"policy_version":1,"revision":1,"since":0,"at":"2026-11-16T03:40:04.666845+00:00","excused":[],"etas":[],"spec":{"kind":"job","version":1,"job_id":"asr","job_id_prefix":"asr","batch_sizes":[8,16,32],"default_batch_size":16,"eta_knob":0.5,"beta_knob":2.0,"target_metric":0.5,"higher_is_better_metric":true,"max_epochs":10,"num_pruning_rounds":2,"window_size":0,"mab_prior_mean":0.0,"mab_prior_precision":0.0,"mab_num_explorations":2,"mab_seed":7,"policy":"paper","power_limits":[]}}');
INSERT INTO "zeus_revisions" VALUES('asr',2,'{"policy_version":1,"revision":2,"since":0,"at":"2026-11-16T03:40:04.681808+00:00","excused":[],"etas":[[9,0.5]],"spec":{"kind":"job","version":1,"job_id":"asr","job_id_prefix":"asr","batch_sizes":[8,16,32],"default_batch_size":16,"eta_knob":0.8,"beta_knob":2.0,"target_metric":0.5,"higher_is_better_metric":true,"max_epochs":10,"num_pruning_rounds":2,"window_size":0,"mab_prior_mean":0.0,"mab_prior_precision":0.0,"mab_num_explorations":2,"mab_seed":7,"policy":"paper","power_limits":[]}}');
INSERT INTO "zeus_revisions" VALUES('images',1,'{"policy_version":1,"revision":1,"since":0,"at":"2026-11-16T03:40:04.685477+00:00","excused":[],"etas":[],"spec":{"kind":"job","version":1,"job_id":"images","job_id_prefix":"images","batch_sizes":[64,128],"default_batch_size":64,"eta_knob":0.5,"beta_knob":2.0,"target_metric":0.5,"higher_is_better_metric":true,"max_epochs":5,"num_pruning_rounds":2,"window_size":0,"mab_prior_mean":0.0,"mab_prior_precision":0.0,"mab_num_explorations":2,"mab_seed":3,"policy":"structured","power_limits":[]}}');
CREATE TABLE zeus_tokens (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	created_at TEXT NOT NULL, 
	revoked_at TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE zeus_trials (
	job_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	recurrence INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	asked_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	leased_until TEXT, 
	so_far TEXT, 
	trial TEXT NOT NULL, 
	PRIMARY KEY (job_id, number), 
	FOREIGN KEY(job_id) REFERENCES zeus_jobs (id)
);
INSERT INTO "zeus_trials" VALUES('asr',1,1,3,'2026-11-16T03:40:04.670080+00:00','2026-11-16T03:40:04.673122+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":1,"recurrence":1,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":16,"phase":"pruning","reason":"pruning, round 1 of 2: exploring 16, at 16","cost_limit":null},"asked":1,"lost":null,"ended":3,"outcome":{"ending":"converged","joules":6000.0,"seconds":48.0,"epochs":4,"metric":0.9,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',2,2,5,'2026-11-16T03:40:04.673672+00:00','2026-11-16T03:40:04.679805+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":2,"recurrence":2,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":8,"phase":"pruning","reason":"pruning, round 1 of 2: exploring 8, below 16","cost_limit":18000.0},"asked":4,"lost":null,"ended":5,"outcome":{"ending":"crashed","joules":null,"seconds":0.0,"epochs":0,"metric":null,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',3,2,7,'2026-11-16T03:40:04.680044+00:00','2026-11-16T03:40:04.681228+00:00',NULL,'{"kind":"outcome","version":1,"ending":"lost","joules":700.0,"seconds":6.0,"epochs":1,"metric":null,"next_epoch_cost":null}','{"kind":"trial","version":1,"ask":{"number":3,"recurrence":2,"attempt":2,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":32,"phase":"pruning","reason":"pruning, round 1 of 2: exploring 32, above 16","cost_limit":18000.0},"asked":6,"lost":null,"ended":7,"outcome":{"ending":"stopped","joules":1400.0,"seconds":12.0,"epochs":2,"metric":null,"next_epoch_cost":700.0}}');
INSERT INTO "zeus_trials" VALUES('asr',4,2,9,'2026-11-16T03:40:04.681355+00:00','2026-11-16T03:40:04.681661+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":4,"recurrence":2,"attempt":3,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":16,"phase":"pruning","reason":"pruning, round 2 of 2: exploring 16, at 16","cost_limit":18000.0},"asked":8,"lost":null,"ended":9,"outcome":{"ending":"converged","joules":6100.0,"seconds":49.0,"epochs":4,"metric":0.9,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',5,3,11,'2026-11-16T03:40:04.682682+00:00','2026-11-16T03:40:04.683758+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":5,"recurrence":3,"attempt":1,"gpu_model":"2 x V100","max_watts":500.0,"last":false},"decision":{"batch_size":16,"phase":"sampling","reason":"16 has been seen 0 times only","cost_limit":null},"asked":10,"lost":null,"ended":11,"outcome":{"ending":"converged","joules":7000.0,"seconds":30.0,"epochs":4,"metric":0.9,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',6,4,13,'2026-11-16T03:40:04.683890+00:00','2026-11-16T03:40:04.684216+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":6,"recurrence":4,"attempt":1,"gpu_model":"2 x V100","max_watts":500.0,"last":false},"decision":{"batch_size":16,"phase":"sampling","reason":"16 has been seen 1 times only","cost_limit":17200.0},"asked":12,"lost":13,"ended":null,"outcome":{"ending":"lost","joules":100.0,"seconds":1.0,"epochs":1,"metric":null,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',7,5,15,'2026-11-16T03:40:04.684334+00:00','2026-11-16T03:40:04.684806+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":7,"recurrence":5,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":16,"phase":"sampling","reason":"16 drew the least of 1 sampled mean costs","cost_limit":14399.999999999998},"asked":14,"lost":null,"ended":15,"outcome":{"ending":"not_converged","joules":15000.0,"seconds":120.0,"epochs":10,"metric":0.3,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('asr',8,6,17,'2026-11-16T03:40:04.685059+00:00','2026-11-16T03:40:04.685059+00:00','2026-11-16T03:50:04.685351+00:00','{"kind":"outcome","version":1,"ending":"lost","joules":100.0,"seconds":1.0,"epochs":1,"metric":null,"next_epoch_cost":null}','{"kind":"trial","version":1,"ask":{"number":8,"recurrence":6,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":8,"phase":"sampling","reason":"8 has been seen 0 times only","cost_limit":14399.999999999998},"asked":17,"lost":null,"ended":null,"outcome":null}');
INSERT INTO "zeus_trials" VALUES('images',1,1,2,'2026-11-16T03:40:04.685835+00:00','2026-11-16T03:40:04.686360+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":1,"recurrence":1,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":64,"phase":"sampling","reason":"64, as nothing has reached the target yet","cost_limit":null},"asked":1,"lost":null,"ended":2,"outcome":{"ending":"converged","joules":1000.0,"seconds":10.0,"epochs":3,"metric":0.9,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('images',2,2,4,'2026-11-16T03:40:04.686483+00:00','2026-11-16T03:40:04.687675+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":2,"recurrence":2,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":128,"phase":"exploring","reason":"trying 128: 47 % chance to beat 64 by 30 % on average; costs about 0.19 recurrences","cost_limit":3496.5432995227998},"asked":3,"lost":null,"ended":4,"outcome":{"ending":"converged","joules":1001.0,"seconds":10.0,"epochs":3,"metric":0.9,"next_epoch_cost":null}}');
INSERT INTO "zeus_trials" VALUES('images',3,3,6,'2026-11-16T03:40:04.688047+00:00','2026-11-16T03:40:04.688644+00:00',NULL,NULL,'{"kind":"trial","version":1,"ask":{"number":3,"recurrence":3,"attempt":1,"gpu_model":"V100","max_watts":250.0,"last":false},"decision":{"batch_size":128,"phase":"exploring","reason":"trying 128: 49 % chance to beat 64 by 10 % on average; costs about 0.01 recurrences","cost_limit":3494.9922186435},"asked":5,"lost":null,"ended":6,"outcome":{"ending":"converged","joules":1002.0,"seconds":10.0,"epochs":3,"metric":0.9,"next_epoch_cost":null}}');
CREATE INDEX zeus_trials_by_sequence ON zeus_trials (job_id, sequence);
CREATE INDEX zeus_trials_by_leased_until ON zeus_trials (job_id, leased_until);
CREATE INDEX zeus_trials_by_recurrence ON zeus_trials (job_id, recurrence);
COMMIT;