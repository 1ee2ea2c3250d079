BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE attempts (
	lease_id INTEGER NOT NULL, 
	job_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	token INTEGER NOT NULL, 
	worker_type TEXT NOT NULL, 
	workers TEXT NOT NULL, 
	nodes TEXT NOT NULL, 
	start_s DOUBLE NOT NULL, 
	deadline_s DOUBLE NOT NULL, 
	ended_s DOUBLE, 
	end_reason TEXT, 
	steps_done DOUBLE NOT NULL, 
	exit_code INTEGER, 
	message TEXT NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (lease_id), 
	CONSTRAINT fk_attempts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "attempts" VALUES(1,'done-3ufrg3gw',1,1,'v100','[0]','["laptop"]',1.79537280657499980929e+09,1.79537281257499980926e+09,1.79537280801975584034e+09,'completed',2.0,0,'');
INSERT INTO "attempts" VALUES(2,'fails-wrvg24du',1,2,'v100','[0]','["laptop"]',1.79537280903650522229e+09,1.7953728150365052223e+09,1.79537280986583590511e+09,'failed',0.0,1,'exit code 1');
INSERT INTO "attempts" VALUES(3,'runs-ugpahw6u',1,3,'v100','[0]','["laptop"]',1.79537281219243144989e+09,1.79537282935116600992e+09,1.79537282798786759375e+09,'released',0.0,-15,'');
INSERT INTO "attempts" VALUES(4,'runs-ugpahw6u',2,4,'v100','[0]','["laptop"]',1.79537282798786759375e+09,1.79537284819243144994e+09,NULL,NULL,0.0,NULL,'');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
INSERT INTO "enrolments" VALUES('92ab33955efec373f68571d7e2c13bf3aaafbbe90b18be7bd1d87117931b5bca','laptop',1.79537279157381701472e+09,1.79537639157381701468e+09,1.79537280237078976635e+09,'laptop');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	event_id INTEGER NOT NULL, 
	leader_token INTEGER NOT NULL, 
	leader_holder TEXT, 
	leader_address TEXT, 
	leader_expires_s DOUBLE, 
	CONSTRAINT pk_head PRIMARY KEY (id)
);
INSERT INTO "head" VALUES(1,27,27,1795372791,'vm:/tmp/tmph_cgi835/state','http://127.0.0.1:18642',1.79537285163828277587e+09);
CREATE TABLE history (
	event_id INTEGER NOT NULL, 
	at_s DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	subject_kind TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	data TEXT NOT NULL, 
	CONSTRAINT pk_history PRIMARY KEY (event_id)
);
INSERT INTO "history" VALUES(1,1.7953727867575521469e+09,'token_created','token','admin-f609f60c','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79537279164601445199e+09,'enrolment_created','enrolment','laptop','admin','{"expires_s":1795376391.573817}');
INSERT INTO "history" VALUES(3,1.79537280237981891626e+09,'agent_enrolled','node','laptop','laptop','{"token_id":"t-8c972f0ab2c6"}');
INSERT INTO "history" VALUES(4,1.79537280273109769819e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"],"cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(5,1.79537280655709433549e+09,'job_submitted','job','done-3ufrg3gw','admin','{"name":"done","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(6,1.79537280655709433549e+09,'job_admitted','job','done-3ufrg3gw','admin','{"cause":{"fact":"job_arrived","subject":"done-3ufrg3gw","project":"default"}}');
INSERT INTO "history" VALUES(7,1.79537280657499980929e+09,'lease_granted','job','done-3ufrg3gw','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"done-3ufrg3gw","project":"default","round":1,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(8,1.79537280801975584034e+09,'lease_ended','job','done-3ufrg3gw','','{"lease":1,"reason":"completed","steps_done":2.0,"exit_code":0,"message":"","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(9,1.79537280801975584034e+09,'job_completed','job','done-3ufrg3gw','','{"cause":{"fact":"job_ended","subject":"done-3ufrg3gw","project":"default"}}');
INSERT INTO "history" VALUES(10,1.79537280900258469588e+09,'job_submitted','job','fails-wrvg24du','admin','{"name":"fails","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(11,1.79537280900258469588e+09,'job_admitted','job','fails-wrvg24du','admin','{"cause":{"fact":"job_arrived","subject":"fails-wrvg24du","project":"default"}}');
INSERT INTO "history" VALUES(12,1.79537280903650522229e+09,'lease_granted','job','fails-wrvg24du','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"fails-wrvg24du","project":"default","round":2,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(13,1.79537280986583590511e+09,'lease_ended','job','fails-wrvg24du','','{"lease":2,"reason":"failed","steps_done":0.0,"exit_code":1,"message":"exit code 1","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(14,1.79537280986583590511e+09,'job_failed','job','fails-wrvg24du','','{"failures":1,"cause":{"fact":"lease_failed","subject":"fails-wrvg24du","project":"default"}}');
INSERT INTO "history" VALUES(15,1.7953728121765878201e+09,'job_submitted','job','runs-ugpahw6u','admin','{"name":"runs","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(16,1.7953728121765878201e+09,'job_admitted','job','runs-ugpahw6u','admin','{"cause":{"fact":"job_arrived","subject":"runs-ugpahw6u","project":"default"}}');
INSERT INTO "history" VALUES(17,1.79537281219243144989e+09,'lease_granted','job','runs-ugpahw6u','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"runs-ugpahw6u","project":"default","round":3,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(18,1.79537281387576103204e+09,'job_submitted','job','held-pe2u4wp6','admin','{"name":"held","project":"default","reason":"held","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(19,1.79537281647460794445e+09,'job_submitted','job','later-dmr73rh8','admin','{"name":"later","project":"default","reason":"dependency","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(20,1.79537282160297584536e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(21,1.79537282376194214823e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(22,1.7953728257721424103e+09,'token_created','token','t-b9d7ec1c28ed','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(23,1.79537282735116600993e+09,'requeue_requested','job','runs-ugpahw6u','admin','{"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(24,1.79537282735116600993e+09,'job_requeued','job','runs-ugpahw6u','admin','{"cause":{"fact":"job_requeued","subject":"runs-ugpahw6u","project":"default"}}');
INSERT INTO "history" VALUES(25,1.79537282798786759375e+09,'lease_ended','job','runs-ugpahw6u','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":"","cause":{"fact":"job_requeued","subject":"runs-ugpahw6u","project":"default"}}');
INSERT INTO "history" VALUES(26,1.79537282798786759375e+09,'job_preempted','job','runs-ugpahw6u','','{"lease":3,"cause":{"fact":"job_requeued","subject":"runs-ugpahw6u","project":"default"}}');
INSERT INTO "history" VALUES(27,1.79537282798786759375e+09,'lease_granted','job','runs-ugpahw6u','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"round","round":6,"ground":"full_time","lag_s":8.205}}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-3ufrg3gw','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79537280655709433549e+09);
INSERT INTO "idempotency" VALUES('admin','f5746e702f3d4e29b30dcc9ff11e9590','fails-wrvg24du','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.79537280900258469588e+09);
INSERT INTO "idempotency" VALUES('admin','8ddfabb48723464ea12cdd4217177189','runs-ugpahw6u','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.7953728121765878201e+09);
INSERT INTO "idempotency" VALUES('admin','3b25209ce0814219b599cc0af8e3ab01','held-pe2u4wp6','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79537281387576103204e+09);
INSERT INTO "idempotency" VALUES('admin','dce0a7d9f1a24519b8d6468f6a16c160','later-dmr73rh8','e5d95a833891bfc0ac52b0f3ac462a6a195e62debabaa60f1977ea0591ae10bb',1.79537281647460794445e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-3ufrg3gw','team','a',1);
CREATE TABLE jobs (
	job_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	project TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	job_type TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	entity TEXT NOT NULL, 
	scale_factor INTEGER NOT NULL, 
	weight DOUBLE NOT NULL, 
	total_steps DOUBLE NOT NULL, 
	steps_done DOUBLE NOT NULL, 
	attempts INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	submitted_s DOUBLE NOT NULL, 
	started_s DOUBLE, 
	finished_s DOUBLE, 
	deadline_s DOUBLE, 
	updated_s DOUBLE NOT NULL, 
	labels TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (job_id), 
	CONSTRAINT uq_jobs_number UNIQUE (number)
);
INSERT INTO "jobs" VALUES('done-3ufrg3gw',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79537280655709433549e+09,1.79537280657499980929e+09,1.79537280801975584034e+09,NULL,1.79537280801975584034e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-wrvg24du',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.79537280900258469588e+09,1.79537280903650522229e+09,1.79537280986583590511e+09,NULL,1.79537280986583590511e+09,'{}','{"name":"fails","command":["/bin/false"],"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-ugpahw6u',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.7953728121765878201e+09,1.79537281219243144989e+09,NULL,1.79796481154313755033e+09,1.79537282798786759375e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797964811.5431376}');
INSERT INTO "jobs" VALUES('held-pe2u4wp6',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79537281387576103204e+09,NULL,NULL,NULL,1.79537281387576103204e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2]}');
INSERT INTO "jobs" VALUES('later-dmr73rh8',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79537281647460794445e+09,NULL,NULL,NULL,1.79537281647460794445e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"depends_on":["runs-ugpahw6u"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, decider INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(25,1.79537282798786759375e+09,'[{"version":1,"type":"LeaseEnded","lease_id":3,"reason":{"type":"EndReason","value":"released"},"steps_done":0.0,"unstarted":[],"ran_s":15.31633734703064}]',1);
INSERT INTO "journal" VALUES(26,1.79537283219310164449e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAYMxEHkA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
INSERT INTO "journal" VALUES(27,1.79537283819303536414e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAaCqRM0A="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79537282376194214823e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79537281647460794445e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.7953728121765878201e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.79537282160297584536e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79537282376194214823e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,24,X'78017D55C7AEE3580EFD176FF5A69453ED94832559C18A8D464139E76817EADFDBD5E81E6036B3BBE421CE3D2441F2E76DADF2AEBB7DFF793BF265ADC7E1F61DFEBA6D75FFB17E7BA72EFEED22691C25110A45BEC13482A130F6EBEBD6E5F19A7F82FEF803FDFA3700A1BFA1380C13C4D76DC9E73DDFF3DB17F40DFA2F8E12FF127CDD6E5FDBB2E75F3F6F459C6EB7EFB7664C7EC4CB521F7976FBBAAD7BD2E47FFB977D58FFB397535C9DC4FE4196711FB2DB77F4EB56FEF3BC157BD7FDF82DFA037771F9E3A38AF806FDFA5FEE7F04FD3FF25F7FFEF9751BF2335FB71FC3DE27F972FB8E7C52FD64B26E7F1767F8FCF475CB87B21EF28FE644F2AA14F1C604B95ACDF7F608E9F6C8812E6E2859D2EBB4945E11C1C48E87F678DD8DD659FCF6913D54155AE60B4292B8A412BE742BC56A2D9B67AA7BDA69200D101CC6EF2E69BD3D8BC8899AE195C237511F6012E42945292BD9BD0FD9B4CDBCF5DA0CA070924986164547F7EBF4993B088BE7437B0D23914281751E0BBFBD2C3BC7E1A3679DAB7753A6B6FD4893EA4457BA7BEBE6AC480409ABAA039BD3AD70887EA7E3984EEA870D6425C05EC93A2AA379F561AA4F3363F06CBA86953A2F8EEB621BE5783DC740148363DAA2544FA02A031111C1672CBAD1F5928C8363C4BA4DF44A6FB35A0422C6F131AC7CB943402D8925BE79A494F6F62340BA5408E6D94B252FD89EA1ADCCF89AB26ADCC4F885A3A6EE1235E150C72CD3C2D447AF091A521FB37631D2734421756E9812A934C0652B7D3B81C14D298BA9EC290F1D862D6A59B555F7927912DB9C4401BA0002395390840F3C969E54EBD7076FA9075B0281B2BA1C43C927364928B821D8F5C645DE516D910930C6D0BBFBC54BF5CEE67DF01AE746A82513687599568845534E80BE50F47424C1BBD79E689F6E5F1F748EF0EC1DAEEC266F30892B422711C240095FDE93131D861847407FD3B90C896079872387A91BB5056A6DDE6BC8EA5CF88D3C45A3732ADB39AAC46E67D049149A82C61D97AD1DC4A9C4F54687E97C4D3DC9892717055F8D695833A6E84A11ACA688CDC1118A0CC201DA89F104FE41DD772A3E45BF3DC7EC24431743ABDD87CCB3EA263EE8EA0D7B3F0B0B13151164F4D60F6D443FA14B8150E56D730BA021952BC23E1A3832BC200DFD90016E59F3CD2A57C3E47119D04AF1E15A0C90A98D2A490C2C46CAF590D94E269E14A96FE1CA8BA3C4640AB88A9EA4D2D43CA27435630EA34A4F4D39401537A4339AC47BBF05134EF83CDBC81E91AA9C013FE79612C63C94387F54401C439E66521DF4909114DA0CC3D40FAF65598AF51C0EF2C881025A16B1C3A79DF087266F0B4803ACA94A673D02F780F47CA97DDC8123782781B46B7720AE4FB8023CA20AC8B7FA44F645039D6D1C594AEE3A2340FA5798C87C183D20C52E086518DA19F5D19E50E3974CA8526B493ECBF3964C295568E14CD93F0C9B56367D049C2EBB02871E08BB3F430E5E146B1CFD6664A2BB515A17E35A90E80FAEB8555A81055BE72277933D2228DD455DCE2AD1F3CE5C676701D25F6147E4418B9AF256A60124E7FA447371FC5904F7BB29D0DE4630F29B3F61AB7E8C1AC28098D759931A19B5A055950B564ABB1D02E659FC23C43D8CFBF45E38985EE4A5CD6B7A368B9159AA18E1CED0D1C966D53E220491026A1CC3F7C150EFDA126CB5CF8D6DB7CC9096EB85D2F439B2E70C64BCA47DF29A62ABDC387C8C187BC50EF8EA5E03232899E2727D79ECB841A1EFE7F67A9A8F0DCFE347219E816F607CB042214869B9515EFB2CD2E270A5A876C1B05D1B34A0A5DE2CBDC962A9D33240622B20BCADE721DFB1EE23C107A2324A137DDF95DEB301FB1063AEA9C35778C58CC345EDBCFAAD79E201B967D531E7AF46C5E06B8354CC75E7C620F282AC365D6846A1598EA12A43FD6A932EF6211E1C8B6A7D24C7D3406C7C5B2C92768AE35371B3D9AAE578A131D531748D8BFA44626AF75CE6870DD4AA596803408179F2CCF1397D355D14C35943622346FA821420E1BC9ECE6E4DA7C0B985A98CD8D452D2BB4300CC710CE3409C62CA9FE6E7B870BB648DD971BE5F0039F9EEE9980246799FC55B43A36701B1DABF8E321E121AA14C5FEBFB00D491CFE07649A89811C6A62155EDB247324EBD5D45B061C7BB3CE8A7B4668F8715A6D65CF7D7A75946C4D1646070072158B80CBA85E13919C1CAADAF2A8033E3ADF03C11B2942E965C7DA918E7F97378940F958CE675C23DEBFB398019D27241C8738259996253E72088B1EF81C2A497E618911152B2A11816DA5ACB486B97151D0F8C7D4221DA7A6F2D04733BB847BEEEC3EF081108A0396091598B550F691FEF98948713B82FD214DEAB07C530E68C0A651F034756B05180278CC95B9B33941012B151A72415F6A601F93394B75F7F019F53E9B5');
CREATE TABLE tokens (
	token_id TEXT NOT NULL, 
	secret_hash TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	role TEXT NOT NULL, 
	projects TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE, 
	revoked_s DOUBLE, 
	last_used_s DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (token_id), 
	CONSTRAINT uq_tokens_secret_hash UNIQUE (secret_hash)
);
INSERT INTO "tokens" VALUES('admin-f609f60c','36b8297a1b31151e88d129e07107c4bd953e7eef287fe1c64832f515d9160759','admin','admin','[]',1.7953727867575521469e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-8c972f0ab2c6','1be8039358ae02353c58e3bf65be822de4c1240a6390ce78a504967c4a88dee6','laptop','agent','[]',1.79537280237073826796e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-b9d7ec1c28ed','119ee15bfdf2a48f92a13f0e834e56ff7acfbab67dd1f95c84f8fd72339c6498','ann','user','["vision"]',1.79537282577100181573e+09,NULL,NULL,NULL);
CREATE TABLE usage (
	day INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	job_type TEXT NOT NULL, 
	worker_type TEXT NOT NULL, 
	leases INTEGER NOT NULL, 
	worker_us INTEGER NOT NULL, 
	CONSTRAINT pk_usage PRIMARY KEY (day, project, owner, job_type, worker_type)
);
CREATE INDEX ix_history_at_s_event_id ON history (at_s, event_id);
CREATE INDEX ix_history_subject_kind_subject_event_id ON history (subject_kind, subject, event_id);
CREATE INDEX ix_jobs_deadline_s_number ON jobs (deadline_s, number);
CREATE INDEX ix_jobs_finished_s_number ON jobs (finished_s, number);
CREATE INDEX ix_jobs_job_type_number ON jobs (job_type, number);
CREATE INDEX ix_jobs_name_number ON jobs (name, number);
CREATE INDEX ix_jobs_owner_number ON jobs (owner, number);
CREATE INDEX ix_jobs_project_number ON jobs (project, number);
CREATE INDEX ix_jobs_status_number ON jobs (status, number);
CREATE INDEX ix_jobs_updated_s_number ON jobs (updated_s, number);
CREATE INDEX ix_jobs_weight_number ON jobs (weight, number);
CREATE INDEX ix_attempts_ended_s_lease_id ON attempts (ended_s, lease_id);
CREATE INDEX ix_attempts_job_id_lease_id ON attempts (job_id, lease_id);
CREATE INDEX ix_idempotency_job_id ON idempotency (job_id);
CREATE INDEX ix_job_labels_key_value_number ON job_labels ("key", value, number);
COMMIT;
