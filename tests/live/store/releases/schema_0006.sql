BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
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
	message TEXT NOT NULL, gpu_used_us INTEGER DEFAULT '0' NOT NULL, gpu_measured_us INTEGER DEFAULT '0' NOT NULL, gpu_told_s DOUBLE, gpu_marks TEXT DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (lease_id), 
	CONSTRAINT fk_attempts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "attempts" VALUES(1,'done-4kaekqj2',1,1,'v100','[0]','["laptop"]',1.79540061686701154708e+09,1.79540062286701154704e+09,1.79540061809699130063e+09,'completed',2.0,0,'',0,0,NULL,'[]');
INSERT INTO "attempts" VALUES(2,'fails-m55du4ez',1,2,'v100','[0]','["laptop"]',1.79540062087889194493e+09,1.79540062886701154713e+09,1795400621.22742,'failed',0.0,1,'exit code 1',0,0,NULL,'[]');
INSERT INTO "attempts" VALUES(3,'runs-9zaq5j4a',1,3,'v100','[1]','["laptop"]',1.79540062087889194493e+09,1.79540062568369579313e+09,1.79540062421040153505e+09,'released',0.0,-15,'',0,0,NULL,'[]');
INSERT INTO "attempts" VALUES(4,'runs-9zaq5j4a',2,4,'v100','[0]','["laptop"]',1.79540062421040153505e+09,1.79540062886701154713e+09,NULL,NULL,0.0,NULL,'',0,0,NULL,'[]');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, workers TEXT DEFAULT 'null' NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
INSERT INTO "enrolments" VALUES('f29a6595fcecd96401a3f54408345bb45d47b07af163d4a32c495ac105ae7f35','laptop',1.79540059451401686667e+09,1.79540419451401686663e+09,1.79540061203818607335e+09,'laptop','null');
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
INSERT INTO "head" VALUES(1,17,28,1795400609,'vm:/tmp/tmp95pubfj9/state','http://127.0.0.1:18642',1.7954006394031283855e+09);
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
INSERT INTO "history" VALUES(1,1.79540059254093384744e+09,'token_created','token','admin-12a4af2f','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79540059452460455894e+09,'enrolment_created','enrolment','laptop','admin','{"expires_s":1795404194.5140169,"workers":null}');
INSERT INTO "history" VALUES(3,1.79540061205341482161e+09,'agent_enrolled','node','laptop','laptop','{"token_id":"t-b4b6724bc43a","workers":null}');
INSERT INTO "history" VALUES(4,1.79540061231763458252e+09,'workers_approved','node','laptop','','{"approved":{"v100":2,"k80":1},"by":"first_report","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(5,1.79540061231763458252e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"],"cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(6,1.79540061586540865895e+09,'job_submitted','job','done-4kaekqj2','admin','{"name":"done","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(7,1.79540061586540865895e+09,'job_admitted','job','done-4kaekqj2','admin','{"cause":{"fact":"job_arrived","subject":"done-4kaekqj2","project":"default"}}');
INSERT INTO "history" VALUES(8,1.79540061686701154708e+09,'lease_granted','job','done-4kaekqj2','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"done-4kaekqj2","project":"default","round":1,"ground":"left_over"}}');
INSERT INTO "history" VALUES(9,1.79540061752459812168e+09,'job_submitted','job','fails-m55du4ez','admin','{"name":"fails","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(10,1.79540061752459812168e+09,'job_admitted','job','fails-m55du4ez','admin','{"cause":{"fact":"job_arrived","subject":"fails-m55du4ez","project":"default"}}');
INSERT INTO "history" VALUES(11,1.79540061809699130063e+09,'lease_ended','job','done-4kaekqj2','','{"lease":1,"reason":"completed","exit_code":0,"message":"","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(12,1.79540061809699130063e+09,'job_completed','job','done-4kaekqj2','','{"cause":{"fact":"job_ended","subject":"done-4kaekqj2","project":"default"}}');
INSERT INTO "history" VALUES(13,1.7954006189493248463e+09,'job_submitted','job','runs-9zaq5j4a','admin','{"name":"runs","project":"default","reason":"","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(14,1.7954006189493248463e+09,'job_admitted','job','runs-9zaq5j4a','admin','{"cause":{"fact":"job_arrived","subject":"runs-9zaq5j4a","project":"default"}}');
INSERT INTO "history" VALUES(15,1.79540061987749457357e+09,'job_submitted','job','held-mjnjqxqg','admin','{"name":"held","project":"default","reason":"held","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(16,1.79540062087889194493e+09,'lease_granted','job','fails-m55du4ez','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"fails-m55du4ez","project":"default","round":2,"ground":"left_over"}}');
INSERT INTO "history" VALUES(17,1.79540062087889194493e+09,'lease_granted','job','runs-9zaq5j4a','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[1],"nodes":["laptop"],"cause":{"fact":"job_arrived","subject":"runs-9zaq5j4a","project":"default","round":2,"ground":"left_over"}}');
INSERT INTO "history" VALUES(18,1795400621.22742,'lease_ended','job','fails-m55du4ez','','{"lease":2,"reason":"failed","exit_code":1,"message":"exit code 1","cause":{"fact":"node_reported","subject":"laptop"}}');
INSERT INTO "history" VALUES(19,1795400621.22742,'job_failed','job','fails-m55du4ez','','{"failures":1,"cause":{"fact":"lease_failed","subject":"fails-m55du4ez","project":"default"}}');
INSERT INTO "history" VALUES(20,1.79540062127121663091e+09,'job_submitted','job','later-fk9yaqm9','admin','{"name":"later","project":"default","reason":"dependency","cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(21,1.7954006221204736232e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(22,1.79540062251522493366e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false,"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(23,1.79540062307554769511e+09,'token_created','token','t-c1aef2f2454c','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(24,1.79540062368369579309e+09,'requeue_requested','job','runs-9zaq5j4a','admin','{"cause":{"fact":"request","subject":"admin"}}');
INSERT INTO "history" VALUES(25,1.79540062368369579309e+09,'job_requeued','job','runs-9zaq5j4a','admin','{"cause":{"fact":"job_requeued","subject":"runs-9zaq5j4a","project":"default"}}');
INSERT INTO "history" VALUES(26,1.79540062421040153505e+09,'lease_ended','job','runs-9zaq5j4a','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":"","cause":{"fact":"job_requeued","subject":"runs-9zaq5j4a","project":"default"}}');
INSERT INTO "history" VALUES(27,1.79540062421040153505e+09,'job_preempted','job','runs-9zaq5j4a','','{"lease":3,"cause":{"fact":"job_requeued","subject":"runs-9zaq5j4a","project":"default"}}');
INSERT INTO "history" VALUES(28,1.79540062421040153505e+09,'lease_granted','job','runs-9zaq5j4a','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"],"cause":{"fact":"round","round":2,"ground":"left_over"}}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-4kaekqj2','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79540061586540865895e+09);
INSERT INTO "idempotency" VALUES('admin','1303e8ffe08f4cf1ab2940ecb1b6d1a9','fails-m55du4ez','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.79540061752459812168e+09);
INSERT INTO "idempotency" VALUES('admin','22230118efaa4351b3d644edb30bcce0','runs-9zaq5j4a','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.7954006189493248463e+09);
INSERT INTO "idempotency" VALUES('admin','a028c98bbf14491784e9d5b5b91794c3','held-mjnjqxqg','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79540061987749457357e+09);
INSERT INTO "idempotency" VALUES('admin','26a63943f223403ba1f7ac674f411b04','later-fk9yaqm9','f2cdc4d48922f79a1f93acc677c1c4d485640b1ce83eda9d02c73ca84e025074',1.79540062127121663091e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-4kaekqj2','team','a',1);
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
INSERT INTO "jobs" VALUES('done-4kaekqj2',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79540061586540865895e+09,1.79540061686701154708e+09,1.79540061809699130063e+09,NULL,1.79540061809699130063e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-m55du4ez',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.79540061752459812168e+09,1.79540062087889194493e+09,1795400621.22742,NULL,1795400621.22742,'{}','{"name":"fails","command":["/bin/false"],"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-9zaq5j4a',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.7954006189493248463e+09,1.79540062087889194493e+09,NULL,1797992618.53832,1.79540062421040153505e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797992618.53832}');
INSERT INTO "jobs" VALUES('held-mjnjqxqg',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79540061987749457357e+09,NULL,NULL,NULL,1.79540061987749457357e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2]}');
INSERT INTO "jobs" VALUES('later-fk9yaqm9',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79540062127121663091e+09,NULL,NULL,NULL,1.79540062127121663091e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"depends_on":["runs-9zaq5j4a"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, decider INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(13,1.7954006221204736232e+09,'[{"version":1,"type":"EntityChanged","entity":{"type":"Entity","name":"vision","weight":1.0,"policy":"fairness"}}]',3);
INSERT INTO "journal" VALUES(14,1.79540062251522493366e+09,'[{"version":1,"type":"PolicyChanged","policy":"max_throughput","time_dependent":false,"record":false,"usage_half_life_s":0.0}]',3);
INSERT INTO "journal" VALUES(15,1.79540062351529240607e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAYIEIE0A="}},{"version":1,"type":"TimerFired","timer":"grace"}]',3);
INSERT INTO "journal" VALUES(16,1.79540062368369579309e+09,'[{"version":1,"type":"JobRequeued","job_id":"runs-9zaq5j4a","reason":"requeue"}]',3);
INSERT INTO "journal" VALUES(17,1.79540062421040153505e+09,'[{"version":1,"type":"LeaseEnded","lease_id":3,"reason":{"type":"EndReason","value":"released"},"steps_done":0.0,"unstarted":[],"ran_s":3.0742621421813965}]',3);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79540062251522493366e+09,'');
INSERT INTO "settings" VALUES('approved/laptop','{"v100":2,"k80":1}',1.79540061231763458252e+09,'');
INSERT INTO "settings" VALUES('uid/1900000000','{"project":"default","owner":"admin"}',1.79540061586540865895e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79540062127121663091e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.7954006189493248463e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.7954006221204736232e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79540062251522493366e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,12,X'7801ED585973A3C8B2FE2F7AC5332C62ED38E781450890104802243131E160DF4162159A98FF7E0BC976DBBEB77B2626BA6F9C87E31753955599595FEEFA63D6C4419ECFBEFC31EB83BA49AA72F6057D9AB5490156D3EE3977A62D8A2170042131FC579AA41014259E6651ED78C13B12F62B46A1184A927F3ECDF2C0690270FFB7DFE64F6F77E9AF77674FC8AFC837286DDD054F7FCC42C76B675F6669E53E3B759DF4813F7B9A359D9B06F7FDBA2B9B5F989B732152DC0194BAEA4A7FF6059BF47A7C0225C2F6B902CF9AFDF9547679FEFBEF4FB3321882A67D2EBBC205FB5F7E4181B2970E6CDD5FFE0984F10CDE37E3ABE2DCB5019BE795E7DCCF01194119D48FC517EA6976AE2B370F8A09AFF671497FD90112ABE11920F18602FA0A1340D901B7DE5DE2AB324CA2EEC1D8B8139F6643556741FD3CF19D009DF5288280F766343203EF0192C324BF53DECB9EF6C0A109BC1785FC2074BABC85FDAA9C288DE7E4C1F3847105600016F7DECB9E04BDB1FBA015B8EA07853341FD1BFA84000DDA18E01DC50022C0071875E6579D0BBE2703CF26C8F2A41D018C4E3982CB0F779A018BFC357FE020FF9CFFEFEF2400637C1B90D049F2E6BF88000BB5D564A19FE319D807CF0051FA533DE3BBFCFFB66780C478CF391F4205B0FE07A182FDF450C1FE1F4225775A90347F968BFC47258F4F68BE252B508A9C294AFC97B4FAAF909E00899DA954FC463C4D6618EAA40D1EA93D74F22600A79DD60101C6BEFCD102FDF2250CFAF0F2A9B3F0FFA6B3ECF675F3FFA47FF3FEBF41867DCBD4DFD63EF9A4FD5FE8FFA6CCAB529FFE7FA5739F289F97EFE88BCFB44FEB77F4E813E9F3F22BFD1DFFCF87EEEB77F47FDFB13A3B49FDFCB59AFE4DC890EF033619E1CEF8B566FE60B6EF6BEFB7597F70D1BFD418A8EC3967C7BB57EDBFC9F493D7DF3BB8CF4ECFBED97172DA07E85E057AB1AEF19FCFA0C389AB0EB4223F52E207CB3F244E1DD16BF3F76D511FC2626A42DE85F4C7C77DF5B88717BD741ADF79C63FE6FDB130FF08E5BF86EB5DF92148A218746EDF66FDC193BE8BCB0BF420D3DD59B755EBE4CF4D1B9C416BF9C3F8736C8AB077FE35E849933229A39F28C38982A991FF51DA0BA3C1660FEDA769EBF93EADFC20FE923C5425B5DC228B3B3A4EDB027402FFF96596F84152261B6F3217331E360ECAF62F72C6DF77FDAF917B7FC09D75F271CA593CC48101CB29A631ED65C001D5F8D58FEF0DC5B9CA136F9A3F409F5F9741D3CCFE04F17C6FEDBE63CA7FAC690D4649A76E7FA4A33CB078B8F934D9024F29A3369E44905357FDC01DA4D117079D46DD7B0E0707A6EF7B42EF9A0F83A633AD9F5E66EC378F16C138B84AC06CF734EB9DBC9B50FD5A619A672F76CA088CE180E1D7391C9CBDCFDB6F591568F43A813F3401B3BB037E60988193B90302F4A11538057CF2F5FBDD90FB38092AF1CBA03F0998384CC5F975EB4FA0020001F83438ED2EADD8C3ACCAC5AED9FA6075369677F61EB9F265C451D6D97599061375BC0F45DBC04E9971B5A2702EB86EC3127E121F4FD17521B70BC34D0A6B97ED23CAB143B8EF986DCEA74A6B370B2FF2D4116F4533AD4B7A33F490576172D3A4852B5C87A574917756735B91FB9DBD97F5AB758CD2ACC9AC06BEC2924804A9EA7B9014117A7C3DB0B826C012C4880EB412E5DD6EB5DAADA56BA90684274645321A4886C9CCE29AB902D96CFA8DC9130A8A13D7B03B092C2F94CB9E8C18ED6654079DF588034F2CE474D56D94EC28D44DBD5BE0EBE320DF9664D7B01BC55ECB9AC5AFDABCD10C253A3BCB736A14C98E3E444B0FF3CE62BB156E6DCE724384C4229B077E581FBC61830BEA69D927861617BA9A586D7A4A8AE47A554C492129C18C7369D8EA1A71BBAD1667A9A47469793A8EDD4E7353B4B87A2C7ABB891C23ED2F8372A3B174C057F8A88B014EA0733BF2657B7DE2794E5927E408333A5166B9BDC10A37EAF24854731FCA4E3E9444D0B189B888A1778CBFAC567D7F6CC7B41F5607723FAEB9CDB0F09BC3667B358843161047647129D56CB9817855DAC82832DF97B724E4F66C69581B5D6D70CFC810BE4FE7AECC597DB7CFD27663986B6133082A9460ED39B6AE5755BA8D6450B5F248ADD6CA5619DD46AF145D8965AED866967DBB7156702A9CB1F4C6C20CD6556B7437F832E085DA32F8C52EAA7EDB6637ADA2A236D3DA5140472A3774A6F28F0794DEDA7811B22748D20387CD5A765D48E9EEDA5EF7CD6E672ABBCB4090A188E0EB641BE7357FE5C275BB8A545931444185B71B39E4843257AD7453E8FCF29C7579CC9E080862EC0DB4C26F8190D3A4186CF03D279C56F6154E1949E6B6F9DE5C4BC869881D536B97DB48D831073582F9B0E6F2F5E2E451022B552291AE682D29D47EE0CEB19CF25E8C69FA2AF439DC775BA73B739D1F9ECFD495638DD23C6989B3D895C81532B76675E5D624CD1014E1E9191CDAA473257B85843726B4A1D53E37DD23750B3578EE8E7161D904A9C3D62E86EB1E1169C3BC4A16E41E4BF7D694F3C3318557670ACDB3F92D0EFC0AA2F6651A463E0AEF49DA259634568B9BC27149FDBC40CB422A4E27DE5C08E1E59495D1055B1EFBB9C95CF74800F15C93CB4BB4B287253372C9A1B479859F2F7D3B0BF6FDBA86878E91DAA5E1494A9ED55B3CD9278D07A96D669E147E45E6BB08F8389BAFE44D7F08EBE424CEBD32C702A3A2698C136FCE96148551354FC1291FE96E8D876520E508799EF372D036E551560B62D54306361663D4A9CD65630A6E64C1A2BA38B1A30A2D6E911BF7266DF8AE32D467CD398F3D66176AA3627B9B2FD6A43977F80AAD8713BBA062D6575444F17732E2FB329389F8FCEA2BB9B5E016CDAE16655BD95694755CEE47ABD9C9B278992FECCE0C37518C7B6C0575CA567545ADCD7598D8DB59D3165BA3EB2ED891CE97152A89BECDE516343295E56AC72530D059B9351AC3DB128488B1646B44242EED6397CC85E6C4C6A47366D3320FCF1B5AEBDAF98AA76BDC22228B144B355D2EDADBCA0DBB343C6D29624009B62729B8976B5AF1A0EAD641A266740B0B2223096629EF8231E87159A5D82118AE66C0DD52AF41AB80A7228563BDCA1D0E7884532ACF994A0174B02FE945A07577745017B3B6B6EA5DC6806284403F599EA23BD82868505A841589C37C24BB17BD63FB2187688F5C63743EF807B343D8B40BF7EC4991988504CBBD340E3CC89F121D0BE4B9F23153D442052FF40B530E1E69A9E7EE98E7B895A6D46A808ADA2804E2641F51EF6C5E2B0F3375FDE2D117935ECCCBA358E1437999131C8C5EB8BEF7F3C545131B1BBE1A0344E5E966B93F7559E16F7D0E09B50DE2DF10ABD176F37D83ACA3FD2AACA31D24825C11CE2F387C0846B9632EF346EC23BEB62464E8DBE8B6202193DFDD0CD1D1947C05EDD4D26AAEDE90AEA4033CC752BAADCEC6A6EA3A11F45F48633864B23953AB4C60A6AC67882D4AB3BA23ED7747C2F60CAB6ECE98DBEE6E5B0394CF2E2F7D0D8F22E2A483F641654C35B46416E21D6AB9D0FA1B3536B2335FAB366C6055D79C38199A0FD4D1636044770B894097838CF65E2933E1C877B1B659057A6057D6990EE29DBDEEBD2A5C07C2658E908B65E7AC4EB2211DFB4A21E82E090310EA7ED5F7DBBD0837A7F53EB099F5B0A6FDC55AC6F6F121D34EEC3E39A3BAB90A5877692F762465734A24335A7D3CC2892A770A256B71549AB916A1DD3E6CC281454D01E64CC42CF20153D22571C4115AC2974CA1144BB62551111BB1C186C4384F6A13596DE7DB55AF8C458F5E36BB83322A6B18892B3C1FB9EB010436AC59F9D8500529ADCD5B97404C5E60252CF41DE9BA66B0D30F429D6F1DE554C02BD21356BD386E4334F2552697E38C860D9A4B951A5A9B6B5217A1AB67AD178DA7AD4A1E5A8024719DCB50DA1D88922C88ACDB42BA45119845F2C2BEC7F546DA6A5B8F31B8CC2AD30237CC08D63669BF6E2F2C31ECBD6A91F12C1CD34A282654BA24251A5E84B95AAE0B761A73FF0746935125');
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
INSERT INTO "tokens" VALUES('admin-12a4af2f','e1a6e206a2f169853574b3089854f1ec9b302e411843f0826cf9587e407db1df','admin','admin','[]',1.79540059254093384744e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-b4b6724bc43a','7b58e7ff12a4eb756e4543aee3214a4ba2de9d0cea6aef2d992f2b8f8cbdb943','laptop','agent','[]',1.79540061203543472286e+09,NULL,NULL,NULL,'',NULL);
INSERT INTO "tokens" VALUES('t-c1aef2f2454c','8a1fc47c193872a8bc3b61ec00cc0ff7c84249d32fb3aa06da75eeb2d159be51','ann','user','["vision"]',1.79540062307457089427e+09,NULL,NULL,NULL,'',NULL);
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
	worker_us INTEGER NOT NULL, gpu_used_us INTEGER DEFAULT '0' NOT NULL, gpu_measured_us INTEGER DEFAULT '0' NOT NULL, 
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
