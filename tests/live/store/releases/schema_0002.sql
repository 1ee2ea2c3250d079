BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
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
INSERT INTO "attempts" VALUES(1,'done-64eefh4w',1,1,'v100','[0]','["laptop"]',1.79533708098463201524e+09,1.79533708698463201521e+09,1.79533708230759048466e+09,'completed',2.0,0,'');
INSERT INTO "attempts" VALUES(2,'fails-3tpzufmv',1,2,'v100','[1]','["laptop"]',1.79533708167792582519e+09,1.79533708698463201521e+09,1.79533708196916937833e+09,'failed',0.0,1,'exit code 1');
INSERT INTO "attempts" VALUES(3,'runs-h8yqpzdy',1,3,'v100','[0]','["laptop"]',1.79533708328443670273e+09,1.79533709467069816593e+09,1.79533709326359510426e+09,'released',0.0,-15,'');
INSERT INTO "attempts" VALUES(4,'runs-h8yqpzdy',2,4,'v100','[0]','["laptop"]',1.79533709326359510426e+09,1.79533711928443670277e+09,NULL,NULL,0.0,NULL,'');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
INSERT INTO "enrolments" VALUES('730e66e87152cd8c362eaa59070ea6b9aff5cd9bec54dfe3fd0deca967408907','laptop',1.79533707560582208627e+09,1.7953406756058220864e+09,1.79533707940344357495e+09,'laptop');
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
INSERT INTO "head" VALUES(1,27,27,1795337075,'vm:/tmp/tmp12nxbcd8/state','http://127.0.0.1:18642',1.79533712577055144313e+09);
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
INSERT INTO "history" VALUES(1,1.79533707356477308277e+09,'token_created','token','admin-6018869e','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79533707561004185677e+09,'enrolment_created','enrolment','laptop','admin','{"expires_s":1795340675.605822}');
INSERT INTO "history" VALUES(3,1.79533707942424106598e+09,'agent_enrolled','node','laptop','laptop','{"token_id":"t-be8e78a7560b"}');
INSERT INTO "history" VALUES(4,1.79533707950071859359e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"]}');
INSERT INTO "history" VALUES(5,1.79533708096040582656e+09,'job_submitted','job','done-64eefh4w','admin','{"name":"done","project":"default","reason":""}');
INSERT INTO "history" VALUES(6,1.79533708096040582656e+09,'job_admitted','job','done-64eefh4w','admin','{}');
INSERT INTO "history" VALUES(7,1.79533708098463201524e+09,'lease_granted','job','done-64eefh4w','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(8,1.79533708165993642806e+09,'job_submitted','job','fails-3tpzufmv','admin','{"name":"fails","project":"default","reason":""}');
INSERT INTO "history" VALUES(9,1.79533708165993642806e+09,'job_admitted','job','fails-3tpzufmv','admin','{}');
INSERT INTO "history" VALUES(10,1.79533708167792582519e+09,'lease_granted','job','fails-3tpzufmv','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[1],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(11,1.79533708196916937833e+09,'lease_ended','job','fails-3tpzufmv','','{"lease":2,"reason":"failed","steps_done":0.0,"exit_code":1,"message":"exit code 1"}');
INSERT INTO "history" VALUES(12,1.79533708196916937833e+09,'job_failed','job','fails-3tpzufmv','','{"failures":1}');
INSERT INTO "history" VALUES(13,1.79533708230759048466e+09,'lease_ended','job','done-64eefh4w','','{"lease":1,"reason":"completed","steps_done":2.0,"exit_code":0,"message":""}');
INSERT INTO "history" VALUES(14,1.79533708230759048466e+09,'job_completed','job','done-64eefh4w','','{}');
INSERT INTO "history" VALUES(15,1.79533708327628040309e+09,'job_submitted','job','runs-h8yqpzdy','admin','{"name":"runs","project":"default","reason":""}');
INSERT INTO "history" VALUES(16,1.79533708327628040309e+09,'job_admitted','job','runs-h8yqpzdy','admin','{}');
INSERT INTO "history" VALUES(17,1.79533708328443670273e+09,'lease_granted','job','runs-h8yqpzdy','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(18,1.79533708492132425306e+09,'job_submitted','job','held-ds5nz7dg','admin','{"name":"held","project":"default","reason":"held"}');
INSERT INTO "history" VALUES(19,1.79533708610519766803e+09,'job_submitted','job','later-gfhtzscd','admin','{"name":"later","project":"default","reason":"dependency"}');
INSERT INTO "history" VALUES(20,1.79533708884434294698e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}');
INSERT INTO "history" VALUES(21,1.79533709009377813337e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false}');
INSERT INTO "history" VALUES(22,1.7953370913585367203e+09,'token_created','token','t-da8aed2a548b','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(23,1.7953370926706981659e+09,'requeue_requested','job','runs-h8yqpzdy','admin','{}');
INSERT INTO "history" VALUES(24,1.7953370926706981659e+09,'job_requeued','job','runs-h8yqpzdy','admin','{}');
INSERT INTO "history" VALUES(25,1.79533709326359510426e+09,'lease_ended','job','runs-h8yqpzdy','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":""}');
INSERT INTO "history" VALUES(26,1.79533709326359510426e+09,'job_preempted','job','runs-h8yqpzdy','','{"lease":3}');
INSERT INTO "history" VALUES(27,1.79533709326359510426e+09,'lease_granted','job','runs-h8yqpzdy','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-64eefh4w','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79533708096040582656e+09);
INSERT INTO "idempotency" VALUES('admin','17145e06b1164046bc107262e3c33c96','fails-3tpzufmv','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.79533708165993642806e+09);
INSERT INTO "idempotency" VALUES('admin','7ea59ba9d51a46fbade3cc09a5472a92','runs-h8yqpzdy','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.79533708327628040309e+09);
INSERT INTO "idempotency" VALUES('admin','8ac20b2d84dd4704b5fd80b4d58410bc','held-ds5nz7dg','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79533708492132425306e+09);
INSERT INTO "idempotency" VALUES('admin','71d86ebbf5dd4002a41cf525b10b9c96','later-gfhtzscd','2f2d34cca7a5898efc5527a79fdaf6f49e37e971ebc22a7c9632d59a60c58bd6',1.79533708610519766803e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-64eefh4w','team','a',1);
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
INSERT INTO "jobs" VALUES('done-64eefh4w',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79533708096040582656e+09,1.79533708098463201524e+09,1.79533708230759048466e+09,NULL,1.79533708230759048466e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-3tpzufmv',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.79533708165993642806e+09,1.79533708167792582519e+09,1.79533708196916937833e+09,NULL,1.79533708196916937833e+09,'{}','{"name":"fails","command":["/bin/false"],"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-h8yqpzdy',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.79533708327628040309e+09,1.79533708328443670273e+09,NULL,1.79792908290828657149e+09,1.79533709326359510426e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797929082.9082866}');
INSERT INTO "jobs" VALUES('held-ds5nz7dg',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79533708492132425306e+09,NULL,NULL,NULL,1.79533708492132425306e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2]}');
INSERT INTO "jobs" VALUES('later-gfhtzscd',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79533708610519766803e+09,NULL,NULL,NULL,1.79533708610519766803e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"depends_on":["runs-h8yqpzdy"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, decider INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(25,1.79533709729053735735e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAYFlOHUA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
INSERT INTO "journal" VALUES(26,1.79533710328505682948e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAAMhQM0A="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
INSERT INTO "journal" VALUES(27,1.79533710928477215768e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAsKJQP0A="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79533709009377813337e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79533708610519766803e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.79533708327628040309e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.79533708884434294698e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79533709009377813337e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,24,X'78016D54D7CEAB68127C17DFF26BC064CE1DC1180C9864E268B4E223E71C47F3EEEBB3DABDDBCBAE2E955A5DDDF5F76D2ED2A6B9FDFAFBB6A5D35CF6DDEDD7FDE7B694EDB7FA8D0E4DF41BA21802C32884A1FE40691CC748EA9F9F5B934673FA25FDF927FEF35FC21DB9FF8FF073BBFD207F20FFA7F3D75F3FB72EDDD379F957B7B6209D6EBFD0AFDCB87E91FF0CD0AD4DF3734BBBBCECD2DBAF1B78BA458CBA3D408F5AF5DC35449B35B49183EF728E729B0430332A1AC8962E818D3AC47CB879D609E1B2E6C434E77E90F3AC19C92BEAC56B6937228A94149CA5897297B2F9257B74818A44F9702D7D3AB2CD4862725AEFB8DD7BDAF4791AC9660BC7133B96505C39B68011EDBA6C0CF0ABEF95D783D1AB39111E404753BE378E33EE06AC8C81D476335D495B4FDFDF217EF54A8012916DA7051500258D5BEFFD8165902A238F606FD2C2308C789ABBF47CBCB21152C53D6C2589F5CC63A437882D5CE4EC9C6944998F5F68264297A1A7BA51CA750A8AFBF8D1D947B02AABD6078AD4BD101609E6300636071126E93CC46157A48DDA802952156A3E933202BA71E9CECC57D602D42254A33742C5ED3ED5FD33303C0EBA7A5349AD035470A857F25D56339C3E5EF765065D7BF6C632494F6E4103EB5EA4D18474CE8A64A0CDDD57A5C7E345EDF784E265975FD8FAC94CED8686D84417CD9145C01FF59C11B56319D46081545A7FD9AF9C43ABE154AC1A62564CC53676789B6BE77359FE7ED363C31EE160FB43430F4ADF149204BF593EC1A17ACA73861EC860B775D10D0BBBE2AEA63D2B2865264111F1B35C3BC0DA9F40594AED63EADAE2F4E6F8A13E8240025F84E2FDCE981E5C9FC3AB1AD8CE3C5B8BEFF166ECAB4ABC0FB55910EE1C5EB3539E19903F9F314429694F514ABBCBBDECF17E278F3945F023C5910B532706727CD4BCA2EB33D4E890A7722CBCB4E561F9F21318233A39EC883462B58A93D589F45726491FDA56DBB9779ED58B21D8AD3EDBF5E1B56811631ABB0C7880AF2221FAD15614CEC2B87AA6652BFCC9217C5C77F24E0A81124B74467BB9AB232F964E5E954A8AEC5D0C0DD390B886A25D3A7E3A730AF1A8C01ABDB4D4138C8B6B039FCCDC989C664ECE4C0F8C26E5F7491CDBDA0BEF50372DF543D4934F7B3FBFA7033D03D216CFCA796CC385515D78A49F846987491DE9F680A251ABA0D0D763AC23AE0CCA7030360D312CF8B279850CE3175D7C78C291B12CDE485A4BB4D85D83ADEDF477ECB9101216A3306F04DF5157EF5B71EB431FB4EC793C3394681BF8FAEA28C109755B16333268FDBD09270A255FD12991AA603DB816EDB580CB08CEE23EBFCDD309A0E45DD51160DD99AC6F11DAED69F99C0BA51CBC88E3CE00B066E8BC15879FC0C84FB68932E215366AD1DB3510B675CD3DB23AE281BE0C84BD82034FBBCC372435812D038EF184479D793054C5A8196F41050CAFF2DAB47444C6F2067E377C2457AF75579CAC5191A66C71FA127C39259312D053E3E0AFB90FC626224C6C8FBC8B68CDD34E400EA8777066AEF5B29B31FC7E855F668D43D765421061512DFC37D9984B6CF3849BB07675484F31F487130BF874187B3CD120568BE44572F88A65F28960595D1D13A036761AA3FA52907BBF3CDF308F558E348D9C31E290A4BFB1E4492AE894AC17A77B66DC711596B50CC62E54E8D49F9EAC01D130B5F0D432D50E62DE5233FF7474B65521C8DAC47063CAE00C0EB0CBA9E144ABDF83DEBF4E2BEE04629E332F49689D7CD0CFDEED1FAD055C01DD5ED51BF1822C949F27E8224EFAAE00FE50F85802E61EB8562FBEBE895BE52A2C1629DF481DDD8BB3A485D1D46DADAD2F5B28914ACDC41B050F997DC4C021F34D390D9261FD109C5EA7C8AA43B8A19CD36D278C0387D3569436279BC52386F14A112D6B6F3317292D46914B38EE51C2465D73334485AC78D70ECF4AEC2DD6E84FE65B68C8CA391878AB8AAE9C7C52DCD29A1123CFA1F71D7F6636DB55A0B8A7B3657280813654F7FB82A7DE3EE933A750948DE3A16F650D27CDFF9ADDBB5790B16B46A431E372CC25186C276FBE86D4C9C3C64B3AF76285461949EF157B15E4783658156ABB53DCA9DA86230B12A4F9BDF3CF55730E6C0C36C5903C80876A52A5F307E93E03D743646E18AE7E21A0292B620914AF64FCAA8490B9C1D3280BCF3173A39229A5672DF5CDCE06CEDE5786C34825E0DABD2A1CB843B692A5597AB884C4BDFDF36F03B3B36D');
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
INSERT INTO "tokens" VALUES('admin-6018869e','655ee04f34a6d2a4a1122e6fb85f97e00070e7a07390ef1de7c8bc087d8f1402','admin','admin','[]',1.79533707356477308277e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-be8e78a7560b','4f189595dc94f0c751bf1313cc821366e08e621ce6304b238bdd5e7ed7dfcec3','laptop','agent','[]',1.79533707940338945387e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-da8aed2a548b','45a2d47305b697dbecb327e9b419b4e80c0920f5f56a8bd7bf771b7c33952f4c','ann','user','["vision"]',1.79533709133897686005e+09,NULL,NULL,NULL);
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
