BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
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
INSERT INTO "attempts" VALUES(1,'done-yj5pmwya',1,1,'v100','[0]','["laptop"]',1.79537452725639653204e+09,1.79537453325639653201e+09,1.79537452901550173764e+09,'completed',2.0,0,'');
INSERT INTO "attempts" VALUES(2,'fails-w7wy8sdq',1,2,'v100','[0]','["laptop"]',1.79537453000508975984e+09,1.79537453600508975981e+09,1.79537453050142264366e+09,'failed',0.0,1,'exit code 1');
INSERT INTO "attempts" VALUES(3,'runs-9j42r3yh',1,3,'v100','[0]','["laptop"]',1.79537453167693448067e+09,1.79537454778265547754e+09,1.79537454641602635388e+09,'released',0.0,-15,'');
INSERT INTO "attempts" VALUES(4,'runs-9j42r3yh',2,4,'v100','[0]','["laptop"]',1.79537454641602635388e+09,1.79537457200508975985e+09,NULL,NULL,0.0,NULL,'');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, workers TEXT DEFAULT 'null' NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
INSERT INTO "enrolments" VALUES('2c28b2b2007e0fee99b192af17e79efeeeba5b7d6a64f0624541f921bed98976','laptop',1.79537451375188016888e+09,1.79537811375188016888e+09,1.79537452321334385866e+09,'laptop','null');
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
INSERT INTO "head" VALUES(1,27,28,1795374513,'vm:/tmp/tmptd0ghb48/state','http://127.0.0.1:18642',1.7953745785590343475e+09);
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
INSERT INTO "history" VALUES(1,1.79537450944345712664e+09,'token_created','token','admin-39e0833e','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79537451378320884708e+09,'enrolment_created','enrolment','laptop','admin','{"expires_s":1795378113.7518802,"workers":null}');
INSERT INTO "history" VALUES(3,1.7953745232802188396e+09,'agent_enrolled','node','laptop','laptop','{"token_id":"t-f833c285b48a","workers":null}');
INSERT INTO "history" VALUES(4,1.79537452396135592458e+09,'workers_approved','node','laptop','','{"approved":{"v100":2,"k80":1},"by":"first_report","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(5,1.79537452396135592458e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"],"cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(6,1.79537452721706557276e+09,'job_submitted','job','done-yj5pmwya','admin','{"name":"done","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(7,1.79537452721706557276e+09,'job_admitted','job','done-yj5pmwya','admin','{"cause":{"fact":"job_arrived","subject":"done-yj5pmwya","project":"default"}}');
INSERT INTO "history" VALUES(8,1.79537452725639653204e+09,'lease_granted','job','done-yj5pmwya','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"done-yj5pmwya","project":"default","round":1,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(9,1.79537452901550173764e+09,'lease_ended','job','done-yj5pmwya','','{"lease":1,"reason":"completed","steps_done":2.0,"exit_code":0,"message":"","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(10,1.79537452901550173764e+09,'job_completed','job','done-yj5pmwya','','{"cause":{"fact":"job_ended","subject":"done-yj5pmwya","project":"default"}}');
INSERT INTO "history" VALUES(11,1.79537452998405098916e+09,'job_submitted','job','fails-w7wy8sdq','admin','{"name":"fails","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(12,1.79537452998405098916e+09,'job_admitted','job','fails-w7wy8sdq','admin','{"cause":{"fact":"job_arrived","subject":"fails-w7wy8sdq","project":"default"}}');
INSERT INTO "history" VALUES(13,1.79537453000508975984e+09,'lease_granted','job','fails-w7wy8sdq','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"fails-w7wy8sdq","project":"default","round":2,"ground":"full_time","lag_s":6.0}}');
INSERT INTO "history" VALUES(14,1.79537453050142264366e+09,'lease_ended','job','fails-w7wy8sdq','','{"lease":2,"reason":"failed","steps_done":0.0,"exit_code":1,"message":"exit code 1","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(15,1.79537453050142264366e+09,'job_failed','job','fails-w7wy8sdq','','{"failures":1,"cause":{"fact":"lease_failed","subject":"fails-w7wy8sdq","project":"default"}}');
INSERT INTO "history" VALUES(16,1.79537453164262056351e+09,'job_submitted','job','runs-9j42r3yh','admin','{"name":"runs","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(17,1.79537453164262056351e+09,'job_admitted','job','runs-9j42r3yh','admin','{"cause":{"fact":"job_arrived","subject":"runs-9j42r3yh","project":"default"}}');
INSERT INTO "history" VALUES(18,1.79537453167693448067e+09,'lease_granted','job','runs-9j42r3yh','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"runs-9j42r3yh","project":"default","round":2,"ground":"full_time","lag_s":4.328}}');
INSERT INTO "history" VALUES(19,1.79537453413592839246e+09,'job_submitted','job','held-u972dswq','admin','{"name":"held","project":"default","reason":"held","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(20,1.79537453630160927773e+09,'job_submitted','job','later-jsrpcunm','admin','{"name":"later","project":"default","reason":"dependency","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(21,1.795374540661260128e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(22,1.79537454228781628612e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(23,1.79537454356427049638e+09,'token_created','token','t-1584d059ee41','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(24,1.79537454578265547747e+09,'requeue_requested','job','runs-9j42r3yh','admin','{"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(25,1.79537454578265547747e+09,'job_requeued','job','runs-9j42r3yh','admin','{"cause":{"fact":"job_requeued","subject":"runs-9j42r3yh","project":"default"}}');
INSERT INTO "history" VALUES(26,1.79537454641602635388e+09,'lease_ended','job','runs-9j42r3yh','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":"","cause":{"fact":"job_requeued","subject":"runs-9j42r3yh","project":"default"}}');
INSERT INTO "history" VALUES(27,1.79537454641602635388e+09,'job_preempted','job','runs-9j42r3yh','','{"lease":3,"cause":{"fact":"job_requeued","subject":"runs-9j42r3yh","project":"default"}}');
INSERT INTO "history" VALUES(28,1.79537454641602635388e+09,'lease_granted','job','runs-9j42r3yh','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"round","round":5,"ground":"full_time","lag_s":7.589}}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-yj5pmwya','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79537452721706557276e+09);
INSERT INTO "idempotency" VALUES('admin','614e381c7b0948d18944c367fd715827','fails-w7wy8sdq','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.79537452998405098916e+09);
INSERT INTO "idempotency" VALUES('admin','70688f12be92428bba7ba7ea418a08e3','runs-9j42r3yh','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.79537453164262056351e+09);
INSERT INTO "idempotency" VALUES('admin','f8abb003afd94c23a7c5e776f9765cca','held-u972dswq','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79537453413592839246e+09);
INSERT INTO "idempotency" VALUES('admin','b2a22b357a294a4283174f8b786a8e21','later-jsrpcunm','880a5a4aac4adea713d0f42e5414a8dec4a0383dbba3a5f3a07e2040cc0ba2ab',1.79537453630160927773e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-yj5pmwya','team','a',1);
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
INSERT INTO "jobs" VALUES('done-yj5pmwya',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79537452721706557276e+09,1.79537452725639653204e+09,1.79537452901550173764e+09,NULL,1.79537452901550173764e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-w7wy8sdq',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.79537452998405098916e+09,1.79537453000508975984e+09,1.79537453050142264366e+09,NULL,1.79537453050142264366e+09,'{}','{"name":"fails","command":["/bin/false"],"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-9j42r3yh',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.79537453164262056351e+09,1.79537453167693448067e+09,NULL,1.79796653125546956062e+09,1.79537454641602635388e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797966531.2554696}');
INSERT INTO "jobs" VALUES('held-u972dswq',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79537453413592839246e+09,NULL,NULL,NULL,1.79537453413592839246e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2]}');
INSERT INTO "jobs" VALUES('later-jsrpcunm',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79537453630160927773e+09,NULL,NULL,NULL,1.79537453630160927773e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"depends_on":["runs-9j42r3yh"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, decider INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(25,1.79537455000606727597e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAQOb7GEA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
INSERT INTO "journal" VALUES(26,1.79537455602844238282e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAUG5KMkA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
INSERT INTO "journal" VALUES(27,1.79537456200510859485e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAA6Hs+PkA="}},{"version":1,"type":"TimerFired","timer":"plan"}]',1);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79537454228781628612e+09,'');
INSERT INTO "settings" VALUES('approved/laptop','{"v100":2,"k80":1}',1.79537452396135592458e+09,'');
INSERT INTO "settings" VALUES('uid/1900000000','{"project":"default","owner":"admin"}',1.79537452721706557276e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79537453630160927773e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.79537453164262056351e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.795374540661260128e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79537454228781628612e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,24,X'78017555D7AEA3C816FD17BF7234E474A47930261830D9C4D1A8453439161868F5BF8FFBA6B7FB54AAB596B4D70EB5EBE76529F3B6BD7CFFBC6CF9BC54437FF946BF2EA0EA3EB7DFE8D8C6BF219A25719A2049E40F04211186657E7D5DDA3C5EF28FE8AFBF88AFFF0988FF0ABE2E97AF8FFAFF30605EF3AF9F97224EC1E5FB320F6B9F5DBEFE737E935F97D7BFA1EF4BB1B6ED8FDF763E741BBF7E7CE2D17F900CFBEBABFF307FFFFD75E9F377BE801FFDDA25F97CF9C63ECEA6F583FC2B97DFA2AF4BDEBFAA3EFF044A24AF4C316F48B0BD79F8DE1A61ED1A39C87EEB5F1CEDB5590AC99868225BD1874F8BB85AE306AEFAD8028075F1F35100EB486A2109AFDC61904BB3CB00EE3733CBFDC46E6E4E1069F7736EB9743D6A880AE81A0DE0755A5661A8D568B7773C405C46CD9A401BA3F1FEDAB0A95B738DB26A9A52E3C83CE1A11F69144A70DEA5DE07434FB73B49692D8B1879CA89C710E176ABB963B623ADB6DF29B905C67A5724B890A57E56396846EA1302F49BD64A74E5E62041DFE112EED1D10BEFE7703EE6B232CAE244EF0174DE4BF58AB215E9CF9EE31C3C674173FAE4FAB08BF5867C2926735C63CDD6566FE40A63315AB94476F50EF0AC88A5478DDBF7E8E59C8A71A8E9529DDE6A9ACAA00F85DF3BA699D9726433C2939CD2C51DD47E2ACC855EECD04E7A252072E2E31F43BD935C14E49CB69BFFD0EE5493470F610B202CF06F86B0EDBD196836AEDD2BA442AF578B04D43DBAC33DFB809EA733036F87B5F7AD7326D879EBB0656D67E74AA101CBCB695354868BA9F6A986F094975B7FD57DDA75987441A207A2AE56EBDA485D6F5DCDE554E164A80C190EABCADC5D9D96F768BF48B5B64BD8CC9B172A50D1FE74B323B708F1CE45DDDB09A9DD2B9B97DEF9C91B2B6A8C294FE80586A995956A7CE1161394DA20CFB3F3F0B5C95A5AB56A60A796F4A8ED769BA69B8672339586827D394025735E5ACEE2332C52D1CC5EC04AC9C383962B4C850FC1C478B1D660A77900C17665A9115830E95709C87648970E12ED859EED6650F227290CD1A6352A9C59EA4353E6521CE7C1D44FE911E737E37E2BE429F1188D96305460D9D36021A386AB897ECC81ACD7635A4CB09D5FDD47DAF225D1698FC6E345BBCFAE482105DB1BB79938DD21C9B72C9EE5BDB5CDE11B40362400CDA0A993843D4CB5787244824EBB73F8110AF504A5C84648011B3F2CD42F9E723A3ABB35DD02444209AD22B67DCF4D7DA03B46B2A144C500643E0890D004B1C126CBA3CE793407EBC3E360C16340AA90A086410CA9707F9E59F77BCE6023E8702D09BB91054F093128BC7914F067BAA5532F9812B421FF8602172D6253D94C44928FA2791B30B28BA0A4B389F62145AA1E84CA472227ED83463C8C54D62AE529380344D0AA6DCE19E61ADB845039D925B7CFB2A84AA91AFDFCE00F27BE5EED409F52CE0F52D1AFDA040974CCEBEF8EC1CDF83A188BBEC860094AF21097648896931FB19CB76CC6CC6030441AFD4E059AACFCC0DDEEB482AE57DC8DDE63D81483BDDDB62E930537B83EF5551A60DE537023A99FB2912AE78C2AF87B128B5757B5D5EAF5184F8D13905E1C474682782DDBDEA1850466887DF602DDA563C7C1745A28BBC36DD6270462BBC62A288358355C5F2907707F5590F6D3A752E4AF6BE20690F172C354706EE7C2535907C580049003AB1581213CC6904EE92D09AE6A1994E49AB577B398D73555A748D6A4F84C5549C26844E637A904DBC74A87FC46FBEDD49D4EB5D94934B06D5729DEDD0AD39BF734F9B7B7BA9B9B1FF6D2C612536958C8D94FC5002150F2634DEB1D62B4EE506B9140F67979BE3FEFFE758B3CD0082D2B6A989D676C730D26170C52518E99A2DDCD1D325702C843A804855E86D6466C096BCCD3880F1C2D1E1253D21439DA734239D0B11B784F3E38D4875A8539CA568490ACC2A961A083AE8B91301E2887B426E2C6A966D169B97024B7F7BE1D2FACEFC40AB9C1287F4B706C0CCBFD78F0092331DBFAF94454A11E8DBB08D2A4012A70B5AEC163BCE29E1B7C12B18B7914EC6C4B83D5201C3039BD46A1629F878E509BA48DD72D5E51362F667C44E280F46D5479DB0A1093AEF735BDF1379F1DBCCDAD8590A658729A6FC974CFBDD8CA21215626F1F94651010C0A0D28B1B018349292FB79F4620045A9721702BB60E998B8192261F3C6ED9AB2A829B9F8096B8CE64AC7C3D1A127D05F4DA85B3862F525141C2F8FA5534EF59EC581D469A442BA8F63E7F43C7037A02C226A3E7D8B756838CBE00CA1CFA6E07CED358FB33248D5AB20BD1DA3CE19F2089E6A10A0F4542A479573183DCC7041F6C9CCFAF3CFCBAF7F00425DD066');
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
INSERT INTO "tokens" VALUES('admin-39e0833e','29eb9d9d055f75e4160b930d0714d3293f1caea262e8e6208381be8c82a6fe60','admin','admin','[]',1.79537450944345712664e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-f833c285b48a','7d0e94e285477f6d06d333705f10e0fca06d10f5be455803f75b101bc72e1787','laptop','agent','[]',1.79537452319188499446e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-1584d059ee41','91cfb065c25e89576d57d5025933834a009776627362f54a0481513208c0e843','ann','user','["vision"]',1.79537454355645394329e+09,NULL,NULL,NULL,'',NULL);
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
