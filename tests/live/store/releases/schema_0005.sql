BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
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
INSERT INTO "attempts" VALUES(1,'done-6y5sxnbh',1,1,'v100','[0]','["laptop"]',1.79538745163126802449e+09,1.79538745763126802446e+09,1.79538745298541927344e+09,'completed',2.0,0,'');
INSERT INTO "attempts" VALUES(2,'fails-dz7jvbfp',1,2,'v100','[1]','["laptop"]',1.79538745274461984634e+09,1.79538745763126802446e+09,1.79538745319196939471e+09,'failed',0.0,1,'exit code 1');
INSERT INTO "attempts" VALUES(3,'runs-gwz5qqf5',1,3,'v100','[0]','["laptop"]',1.79538745382734727861e+09,1.79538746326453447338e+09,1.79538746190788125987e+09,'released',0.0,-15,'');
INSERT INTO "attempts" VALUES(4,'runs-gwz5qqf5',2,4,'v100','[0]','["laptop"]',1.79538746190788125987e+09,1.79538748982734727862e+09,NULL,NULL,0.0,NULL,'');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, workers TEXT DEFAULT 'null' NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
INSERT INTO "enrolments" VALUES('fe2669c8359512867541ab6e6423e7d08e05afc3e780d587a0bddf90303c2e2a','laptop',1.79538744547692251203e+09,1.79539104547692251207e+09,1.79538744979905390743e+09,'laptop','null');
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
INSERT INTO "head" VALUES(1,27,28,1795387445,'vm:/tmp/tmpshuv7zjg/state','http://127.0.0.1:18642',1.79538749077971053124e+09);
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
INSERT INTO "history" VALUES(1,1.79538744347718834878e+09,'token_created','token','admin-c14ceecb','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79538744548708939551e+09,'enrolment_created','enrolment','laptop','admin','{"expires_s":1795391045.4769225,"workers":null}');
INSERT INTO "history" VALUES(3,1.7953874498403241634e+09,'agent_enrolled','node','laptop','laptop','{"token_id":"t-26e4d0d1bfd7","workers":null}');
INSERT INTO "history" VALUES(4,1.79538745015925812718e+09,'workers_approved','node','laptop','','{"approved":{"v100":2,"k80":1},"by":"first_report","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(5,1.79538745015925812718e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"],"cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(6,1.79538745161939311024e+09,'job_submitted','job','done-6y5sxnbh','admin','{"name":"done","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(7,1.79538745161939311024e+09,'job_admitted','job','done-6y5sxnbh','admin','{"cause":{"fact":"job_arrived","subject":"done-6y5sxnbh","project":"default"}}');
INSERT INTO "history" VALUES(8,1.79538745163126802449e+09,'lease_granted','job','done-6y5sxnbh','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"done-6y5sxnbh","project":"default","round":1,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(9,1.7953874527368912697e+09,'job_submitted','job','fails-dz7jvbfp','admin','{"name":"fails","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(10,1.7953874527368912697e+09,'job_admitted','job','fails-dz7jvbfp','admin','{"cause":{"fact":"job_arrived","subject":"fails-dz7jvbfp","project":"default"}}');
INSERT INTO "history" VALUES(11,1.79538745274461984634e+09,'lease_granted','job','fails-dz7jvbfp','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[1],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"fails-dz7jvbfp","project":"default","round":1,"ground":"full_time","lag_s":4.887}}');
INSERT INTO "history" VALUES(12,1.79538745298541927344e+09,'lease_ended','job','done-6y5sxnbh','','{"lease":1,"reason":"completed","exit_code":0,"message":"","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(13,1.79538745298541927344e+09,'job_completed','job','done-6y5sxnbh','','{"cause":{"fact":"job_ended","subject":"done-6y5sxnbh","project":"default"}}');
INSERT INTO "history" VALUES(14,1.79538745319196939471e+09,'lease_ended','job','fails-dz7jvbfp','','{"lease":2,"reason":"failed","exit_code":1,"message":"exit code 1","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(15,1.79538745319196939471e+09,'job_failed','job','fails-dz7jvbfp','','{"failures":1,"cause":{"fact":"lease_failed","subject":"fails-dz7jvbfp","project":"default"}}');
INSERT INTO "history" VALUES(16,1.79538745380428123475e+09,'job_submitted','job','runs-gwz5qqf5','admin','{"name":"runs","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(17,1.79538745380428123475e+09,'job_admitted','job','runs-gwz5qqf5','admin','{"cause":{"fact":"job_arrived","subject":"runs-gwz5qqf5","project":"default"}}');
INSERT INTO "history" VALUES(18,1.79538745382734727861e+09,'lease_granted','job','runs-gwz5qqf5','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"runs-gwz5qqf5","project":"default","round":2,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(19,1.79538745506877779958e+09,'job_submitted','job','held-apm2h4jf','admin','{"name":"held","project":"default","reason":"held","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(20,1.79538745617458772663e+09,'job_submitted','job','later-64dh66rs','admin','{"name":"later","project":"default","reason":"dependency","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(21,1.79538745811563110353e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(22,1.79538745908854627609e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(23,1795387459.98977,'token_created','token','t-3c6dd968e218','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(24,1.79538746126453447344e+09,'requeue_requested','job','runs-gwz5qqf5','admin','{"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(25,1.79538746126453447344e+09,'job_requeued','job','runs-gwz5qqf5','admin','{"cause":{"fact":"job_requeued","subject":"runs-gwz5qqf5","project":"default"}}');
INSERT INTO "history" VALUES(26,1.79538746190788125987e+09,'lease_ended','job','runs-gwz5qqf5','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":"","cause":{"fact":"job_requeued","subject":"runs-gwz5qqf5","project":"default"}}');
INSERT INTO "history" VALUES(27,1.79538746190788125987e+09,'job_preempted','job','runs-gwz5qqf5','','{"lease":3,"cause":{"fact":"job_requeued","subject":"runs-gwz5qqf5","project":"default"}}');
INSERT INTO "history" VALUES(28,1.79538746190788125987e+09,'lease_granted','job','runs-gwz5qqf5','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"policy_changed","subject":"max_throughput","round":4,"ground":"moved"}}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-6y5sxnbh','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79538745161939311024e+09);
INSERT INTO "idempotency" VALUES('admin','e123d26ebb624e06bc99878d00edc4cd','fails-dz7jvbfp','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.7953874527368912697e+09);
INSERT INTO "idempotency" VALUES('admin','aeb840ac80ea450abf116d750b59f594','runs-gwz5qqf5','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.79538745380428123475e+09);
INSERT INTO "idempotency" VALUES('admin','a81da7af38fa43cbab6ba5d1e1d0350d','held-apm2h4jf','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79538745506877779958e+09);
INSERT INTO "idempotency" VALUES('admin','a03c3316bd5a43ae98f8286ecc8f5b78','later-64dh66rs','86f8af803f736962202e449815aa7b8ab6082b2a53acde4cd0d9f844921f7f55',1.79538745617458772663e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-6y5sxnbh','team','a',1);
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
INSERT INTO "jobs" VALUES('done-6y5sxnbh',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79538745161939311024e+09,1.79538745163126802449e+09,1.79538745298541927344e+09,NULL,1.79538745298541927344e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-dz7jvbfp',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.7953874527368912697e+09,1.79538745274461984634e+09,1.79538745319196939471e+09,NULL,1.79538745319196939471e+09,'{}','{"name":"fails","command":["/bin/false"],"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-gwz5qqf5',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.79538745380428123475e+09,1.79538745382734727861e+09,NULL,1.79797945355777406689e+09,1.79538746190788125987e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797979453.557774}');
INSERT INTO "jobs" VALUES('held-apm2h4jf',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79538745506877779958e+09,NULL,NULL,NULL,1.79538745506877779958e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2]}');
INSERT INTO "jobs" VALUES('later-64dh66rs',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79538745617458772663e+09,NULL,NULL,NULL,1.79538745617458772663e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"depends_on":["runs-gwz5qqf5"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, decider INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(25,1.79538746782746696474e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAUAF1JkA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',2);
INSERT INTO "journal" VALUES(26,1.79538747382736706735e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAkHM6N0A="}},{"version":1,"type":"TimerFired","timer":"plan"}]',2);
INSERT INTO "journal" VALUES(27,1.79538747983501243594e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAA1C6fQUA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',2);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79538745908854627609e+09,'');
INSERT INTO "settings" VALUES('approved/laptop','{"v100":2,"k80":1}',1.79538745015925812718e+09,'');
INSERT INTO "settings" VALUES('uid/1900000000','{"project":"default","owner":"admin"}',1.79538745161939311024e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79538745617458772663e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.79538745380428123475e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.79538745811563110353e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79538745908854627609e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,24,X'78017553D7CEB446167C97B9E5D39261F8255FC030E49CC15A59C090730E96DF7DC7ABF5E5DE555755F7A92375FDF958CAAC6D1FBFFE7CECD9BC5443FFF805FF3CD6AAFB9EFE66C736FE9B22291C7D921841FEEB89902846A27FFD3CDA2C5EB2AFE9F7DFB19F7F0C24FC8FE1E7F1F881FE05FD1F659DB7ECE7CF471EA7EBE3D7631CDA2ABDFE48CBB82FB2CFE3E7B16C499DFD57EAE2F38FB59C87AD28C76DFD4A5FD87F1EBFB09F47F13FF8E886FD7BEBAF9F7E6BDB7FFFFBE7D16747B6AC7FF45B9764F3E317F2CD3A6D5FE6BFDBFD6DFA79647D51F5D97774C27B658A7843829C8DE27B5B84B45B6443E7AB2F18D26B93145F30CEC07643D125323595A77FE4FD2B71566155A27B774AE8E21B9747AA847B97C9CBF918464EDD4B616AD5D9A0CE616CD7126047A3B333FA3CD171238D4A1EB6367D47144CBD0D39F8F0F7E48767A88063D477F5B6889B895D8AB0F6C769E43A88E039EAF84FF402734C41B1CB35C411BFDE015FF61FDE95AC16156CEF7E9B6E1540049636710F9B4EB6142D0EDA1A8849489A55740328C8661035FFF2D308510554BD082C9CC70242B34F72F746CC3022C9DDBBDEB4CDA633966192BDA35E4B1A0DC7DB357199191095C0FD5003E2C27A9D75DD357BDE6732ADDD2C610A6BE5B49670CBCFC6AAC305AD11EBB4298C22E6D190251ACB17166F174B7C5EF8D17FAE4CF3BC6B0079D75E09921DC769A695F1B66A9F92DCEDCC891B6FDA8ACA03F9A3AACDBDF319F5A4483564F491AB18E6EC60899AFD1084446426BC840A16AA7ECB1161B3C650B15C89EA5181B2FBC47F244ABBD0170A1A23CEBC2FB9D60E06086325D27D79682F2FB86CE220CA12BDAD734F8D91C716B316B3FE2D56941587EE70AAADD5A046BDDB1650272A294E3EA51F2A179BFE6769BAD7E299B8514765B7683DF6045C9CA4FDD3B34D0E708FC052F35AB5382F50B329C427829395EE39432E84567E7B0BD7E8550BC5D5C9EE49DDE0BAD82C298ECE3709AE4C6941251B2E3BD822085848892AE168CDCB043A4533ED60E09BF76724D7F35A4ECB8DCAEA190139A7A100CAF0FDA45B2C9F8C68F38D26A8125AF123D9E8C5D8B49C50D4E5D15DF2E0EE4C1F8564ECE429B8804E09025EB6C233249A84DB233B1415DC0B95CC213F6B9AC34DE04B1C1A79B6243183B1AABB40A5843E4DD1C0FBDAD86270148C83C4968E2CD33F67DCB96283F5517FF2ED5BDFA18B729B72AC072D7064D68B9EAA353532C70F12981FCA8E1E61405C3B0C2467D69F4B3FDDF0332F6F2DEF176021771416B4A956E064236B36C3BF15A0BAB193268CA42283A2C2EF3F8B093C4BE273AD63144196C4C4132D5C8171D9395F9B410F29A7D3A615A49A087BF5E075DB55567A9979A5B57DB1FAC98E905B8CE1B1B83745A21434B4320623391BDB30AFA8820558C06D858C9308100492D44A24664CC3BF4AB91AFD48A25F7652145711D36F6EDD06D9ACDA0C0A56CDBBC5A79E4BE478E8607DDDC9B1B95604F3AF64899FA404E311F1C132A7860C1AF858A180BD7C135A0452220B6EC72A2BF8B6D1AC752657095F328B564344BB7EB269985A9BAE1EF0D26FC3D219AFD1135FC9C4F39CA742EFD6F112B57C3D4D7314B938DDC3636B94814386A42B08259CA445C4D9331B6B31E01DE9BDF43B03CB92F69483E4FE6C7A384F17A3732B3E594154CAFA326B167FBBA82932CC86468BECDE9330F8F83CE1CBDA4D67CDB0EC06D13DE8E4E171EA1CA7179F0265E07D86738ADB3EED421D5CE2EC4CEB47EB11451BA051365BF9A4D314397C8339C140021D0E3A3D8FA6D36ADE89450497CD9FE61B697206E7932A54BB0E4EE77B628AA565BD5E338EA555322B4F61C113D85F77B1D6263A192E6B0E665748C95E04F76C0C9256F30B526E510933D1EA6024A2BB58B11C9B449C3AD0A6138DF3B11738E633AE081569084F9F3963D33EE43E0DF8EB764772D9D19DDF6F3316033A6ADE74D015FCB58F2429BDB74D510C18F3BDFED5F32917797938D8509C23506197D914CFD25B32157DD12CF6A00BF693744C0E435CCF4B1564A3E384CD506E335CB1EB121A8E60FE69578DD7538D499190DD55A16C13C13EB9F96CBEAF723286C9BDFE4AC14AC36647BB56E34EA237EA9F3692E579369FD33DA3CBDDC5CD80B357C2E82560A05EB75D654626997FDD2F1F2D81FB09E673D17FCB4B7943AAE306DE42E75E59ECB2F993F2C17B94F51A2B04511205420DB507B08BC020883E6BA5DD51D2CC7E95C96B94B8ADFFA1D2539948649A56EDF37EDE9E64A43641B4EF7A6051CA4BE0CCC966BD0A2626D6E8D2895081A5BCF5BA31FFE581C3CA0B21721649A0BF6808A632D04B222C32D65DEF20DDC4C615B921964A507D75CF1BB88EE083FA7CBFCD2D400E89451702CCFAD69DBAC59A609132DCA6AF522AF02D70B1A9AF3218A735626EEB36178DA30145874642E94840A5816DA5CF70ED195E6C007B449F34AEBD5783FEEDB7C75FFF01C95301C3');
CREATE TABLE tokens (
	token_id TEXT NOT NULL, 
	secret_hash TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	role TEXT NOT NULL, 
	projects TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE, 
	revoked_s DOUBLE, 
	last_used_s DOUBLE, replaces TEXT DEFAULT '' NOT NULL, replaced_s DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (token_id), 
	CONSTRAINT uq_tokens_secret_hash UNIQUE (secret_hash)
);
INSERT INTO "tokens" VALUES('admin-c14ceecb','a3ee2bab77c7b1529e07a26f31f50a421551bd0673ff42d5930eba330774e36e','admin','admin','[]',1.79538744347718834878e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-26e4d0d1bfd7','9864e9f6c6ea220ab71f0c1d7ccaed147b82a6ff8e567feb9df3eb0e459498c0','laptop','agent','[]',1.79538744978368687631e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-3c6dd968e218','3c17024ff624b6b7d5cfab9baac526f39f2eb2754e847640a241887926144bf4','ann','user','["vision"]',1.79538745998913669586e+09,NULL,NULL,NULL,'',NULL);
CREATE TABLE uploads (
	project TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	made_s DOUBLE NOT NULL, 
	used_s DOUBLE NOT NULL, 
	CONSTRAINT pk_uploads PRIMARY KEY (project, digest)
);
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
CREATE INDEX ix_uploads_used_s ON uploads (used_s);
COMMIT;
