BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
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
INSERT INTO "attempts" VALUES(1,'done-k9mmhez5',1,1,'v100','[0]','["laptop"]',1.7952526055256390571e+09,1.79525261152563905711e+09,1.79525260683093619345e+09,'completed',2.0,0,'');
INSERT INTO "attempts" VALUES(2,'fails-cpvbu37v',1,2,'v100','[0]','["laptop"]',1.79525260837265372279e+09,1.79525261152563905711e+09,1.79525260849116349219e+09,'failed',0.0,1,'exit code 1');
INSERT INTO "attempts" VALUES(3,'runs-va26trgb',1,3,'v100','[1]','["laptop"]',1.79525260837265372279e+09,1.79525262952563905718e+09,1.79525262237645959854e+09,'released',0.0,-15,'');
INSERT INTO "attempts" VALUES(4,'runs-va26trgb',2,4,'v100','[0]','["laptop"]',1.79525262237645959854e+09,1.79525263552563905718e+09,NULL,NULL,0.0,NULL,'');
CREATE TABLE enrolments (
	secret_hash TEXT NOT NULL, 
	node TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	expires_s DOUBLE NOT NULL, 
	used_s DOUBLE, 
	used_by TEXT NOT NULL, 
	CONSTRAINT pk_enrolments PRIMARY KEY (secret_hash)
);
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
INSERT INTO "head" VALUES(1,23,22,1795252603,'old:/var/lib/leasehold','http://127.0.0.1:8642',1.79525264315119457243e+09);
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
INSERT INTO "history" VALUES(1,1.7952526016536853314e+09,'token_created','token','admin-bfb7b1d2','','{"subject":"admin","role":"admin","first":true}');
INSERT INTO "history" VALUES(2,1.79525260336532783509e+09,'node_joined','node','laptop','','{"workers":["v100","v100","k80"]}');
INSERT INTO "history" VALUES(3,1.79525260451154160495e+09,'job_submitted','job','done-k9mmhez5','admin','{"name":"done","project":"default","reason":""}');
INSERT INTO "history" VALUES(4,1.79525260451154160495e+09,'job_admitted','job','done-k9mmhez5','admin','{}');
INSERT INTO "history" VALUES(5,1.7952526055256390571e+09,'lease_granted','job','done-k9mmhez5','','{"lease":1,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(6,1.79525260596338152884e+09,'job_submitted','job','fails-cpvbu37v','admin','{"name":"fails","project":"default","reason":""}');
INSERT INTO "history" VALUES(7,1.79525260596338152884e+09,'job_admitted','job','fails-cpvbu37v','admin','{}');
INSERT INTO "history" VALUES(8,1.79525260683093619345e+09,'lease_ended','job','done-k9mmhez5','','{"lease":1,"reason":"completed","steps_done":2.0,"exit_code":0,"message":""}');
INSERT INTO "history" VALUES(9,1.79525260683093619345e+09,'job_completed','job','done-k9mmhez5','','{}');
INSERT INTO "history" VALUES(10,1.79525260737264370919e+09,'job_submitted','job','runs-va26trgb','admin','{"name":"runs","project":"default","reason":""}');
INSERT INTO "history" VALUES(11,1.79525260737264370919e+09,'job_admitted','job','runs-va26trgb','admin','{}');
INSERT INTO "history" VALUES(12,1.79525260837265372279e+09,'lease_granted','job','fails-cpvbu37v','','{"lease":2,"attempt":1,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(13,1.79525260837265372279e+09,'lease_granted','job','runs-va26trgb','','{"lease":3,"attempt":1,"worker_type":"v100","workers":[1],"nodes":["laptop"]}');
INSERT INTO "history" VALUES(14,1.79525260849116349219e+09,'lease_ended','job','fails-cpvbu37v','','{"lease":2,"reason":"failed","steps_done":0.0,"exit_code":1,"message":"exit code 1"}');
INSERT INTO "history" VALUES(15,1.79525260849116349219e+09,'job_failed','job','fails-cpvbu37v','','{"failures":1}');
INSERT INTO "history" VALUES(16,1.79525260889038705829e+09,'job_submitted','job','held-w9cdb446','admin','{"name":"held","project":"default","reason":"held"}');
INSERT INTO "history" VALUES(17,1.79525261276929259295e+09,'job_submitted','job','later-4z3x7mmb','admin','{"name":"later","project":"default","reason":"dependency"}');
INSERT INTO "history" VALUES(18,1.79525261432579064371e+09,'project_changed','project','vision','admin','{"weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}');
INSERT INTO "history" VALUES(19,1.79525261680337190626e+09,'policy_changed','policy','max_throughput','admin','{"before":"max_min_fairness","parameters":{},"agnostic":false,"space_sharing":false}');
INSERT INTO "history" VALUES(20,1795252617.35403,'token_created','token','t-9cab8b34a087','admin','{"subject":"ann","role":"user","projects":["vision"]}');
INSERT INTO "history" VALUES(21,1.79525262237645959854e+09,'lease_ended','job','runs-va26trgb','','{"lease":3,"reason":"released","steps_done":0.0,"exit_code":-15,"message":""}');
INSERT INTO "history" VALUES(22,1.79525262237645959854e+09,'lease_granted','job','runs-va26trgb','','{"lease":4,"attempt":2,"worker_type":"v100","workers":[0],"nodes":["laptop"]}');
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_s DOUBLE NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key"), 
	CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "idempotency" VALUES('admin','one','done-k9mmhez5','de8c655bb10c7a5489441b19526654f67678e187c375153fc92f35e0d7884ca3',1.79525260451154160495e+09);
INSERT INTO "idempotency" VALUES('admin','5b7971564e5a4d5d9832afc74b4985ae','fails-cpvbu37v','44cff6e369829adc01bfeaca5df86b148735f5ff075191ba761f7238032129f4',1.79525260596338152884e+09);
INSERT INTO "idempotency" VALUES('admin','6003ccde433f487ca4af343ef1f5f3f5','runs-va26trgb','3b31f437821c840a6a1424c9624d8eb9212be324ab55c112f07bb22abc0f68e1',1.79525260737264370919e+09);
INSERT INTO "idempotency" VALUES('admin','0ac787ffcbe04368aadc32dbec00cac5','held-w9cdb446','0cd9d82d282c4d6a94d846301d3b4449b21f2ab6d7ffc9447b537e326bca02eb',1.79525260889038705829e+09);
INSERT INTO "idempotency" VALUES('admin','08d08c666b444413b80ddea3e9c37281','later-4z3x7mmb','fadb3a84c2139e4af94dd52d4a87f95e959e7f1a7ca85a063a937786dd9a45e7',1.79525261276929259295e+09);
CREATE TABLE job_labels (
	job_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_job_labels_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('done-k9mmhez5','team','a',1);
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
INSERT INTO "jobs" VALUES('done-k9mmhez5',1,'done','default','admin','default/done','completed','','default',1,1.0,2.0,2.0,1,0,1.79525260451154160495e+09,1.7952526055256390571e+09,1.79525260683093619345e+09,NULL,1.79525260683093619345e+09,'{"team":"a"}','{"name":"done","command":["/bin/sleep","1"],"duration_s":2.0,"labels":{"team":"a"}}');
INSERT INTO "jobs" VALUES('fails-cpvbu37v',2,'fails','default','admin','default/fails','failed','','default',1,1.0,3600.0,0.0,1,0,1.79525260596338152884e+09,1.79525260837265372279e+09,1.79525260849116349219e+09,NULL,1.79525260849116349219e+09,'{}','{"name":"fails","command":["/bin/false"],"duration_s":3600.0,"max_failures":0}');
INSERT INTO "jobs" VALUES('runs-va26trgb',3,'runs','default','admin','toy','running','','default',1,1.0,1000.0,0.0,2,0,1.79525260737264370919e+09,1.79525260837265372279e+09,NULL,1.79784460694389128685e+09,1.79525262237645959854e+09,'{}','{"name":"runs","command":["/bin/sleep","60"],"total_steps":1000.0,"job_type":"toy","throughputs":{"v100":2.0,"k80":1.0},"deadline_s":1797844606.9438913}');
INSERT INTO "jobs" VALUES('held-w9cdb446',4,'held','default','admin','default/held','held','held','default',2,1.0,3600.0,0.0,0,0,1.79525260889038705829e+09,NULL,NULL,NULL,1.79525260889038705829e+09,'{}','{"name":"held","command":["/bin/sleep","60"],"scale_factors":[2],"duration_s":3600.0}');
INSERT INTO "jobs" VALUES('later-4z3x7mmb',5,'later','default','admin','default/later','waiting','dependency','default',1,1.0,3600.0,0.0,0,0,1.79525261276929259295e+09,NULL,NULL,NULL,1.79525261276929259295e+09,'{}','{"name":"later","command":["/bin/sleep","60"],"duration_s":3600.0,"depends_on":["runs-va26trgb"]}');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	now_s DOUBLE NOT NULL, 
	events TEXT NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(13,1.79525261276929259295e+09,'[{"version":1,"type":"ConfigurationsChanged","table":{"type":"ConfigurationTable","worker_types":["v100","k80"],"profiles":[{"type":"Profile","job_type":"default/done","scale_factor":1,"configurations":[{"type":"Configuration","demand":[1,0],"throughput":1.0,"locality":"any","plan":""},{"type":"Configuration","demand":[0,1],"throughput":1.0,"locality":"any","plan":""}]},{"type":"Profile","job_type":"default/fails","scale_factor":1,"configurations":[{"type":"Configuration","demand":[1,0],"throughput":1.0,"locality":"any","plan":""},{"type":"Configuration","demand":[0,1],"throughput":1.0,"locality":"any","plan":""}]},{"type":"Profile","job_type":"toy","scale_factor":1,"configurations":[{"type":"Configuration","demand":[1,0],"throughput":2.0,"locality":"any","plan":""},{"type":"Configuration","demand":[0,1],"throughput":1.0,"locality":"any","plan":""}]},{"type":"Profile","job_type":"default/held","scale_factor":2,"configurations":[{"type":"Configuration","demand":[2,0],"throughput":1.0,"locality":"any","plan":""},{"type":"Configuration","demand":[0,2],"throughput":1.0,"locality":"any","plan":""}]},{"type":"Profile","job_type":"default/later","scale_factor":1,"configurations":[{"type":"Configuration","demand":[1,0],"throughput":1.0,"locality":"any","plan":""},{"type":"Configuration","demand":[0,1],"throughput":1.0,"locality":"any","plan":""}]}],"throughput":{"type":"array","dtype":"<f8","shape":[5,2],"writeable":false,"data":"AAAAAAAA8D8AAAAAAADwPwAAAAAAAPA/AAAAAAAA8D8AAAAAAAAAQAAAAAAAAPA/AAAAAAAA8D8AAAAAAADwPwAAAAAAAPA/AAAAAAAA8D8="},"demand":{"type":"array","dtype":"<i8","shape":[5,2,2],"writeable":false,"data":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAA=="},"pair_profiles":{"type":"array","dtype":"<i8","shape":[0,2],"writeable":false,"data":""},"pair_demand":{"type":"array","dtype":"<i8","shape":[0,2],"writeable":false,"data":""},"pair_throughput":{"type":"array","dtype":"<f8","shape":[0,2],"writeable":false,"data":""}}}]');
INSERT INTO "journal" VALUES(14,1.79525261377740955352e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAMLyEJEA="}},{"version":1,"type":"TimerFired","timer":"grace"}]');
INSERT INTO "journal" VALUES(15,1.79525261432579064371e+09,'[{"version":1,"type":"EntityChanged","entity":{"type":"Entity","name":"vision","weight":1.0,"policy":"fairness"}}]');
INSERT INTO "journal" VALUES(16,1.7952526150268592834e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAA8CuEKUA="}},{"version":1,"type":"TimerFired","timer":"plan"}]');
INSERT INTO "journal" VALUES(17,1.79525261532928752904e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAsNu5KkA="}},{"version":1,"type":"TimerFired","timer":"grace"}]');
INSERT INTO "journal" VALUES(18,1.79525261680337190626e+09,'[{"version":1,"type":"PolicyChanged","policy":"max_throughput","time_dependent":false,"record":false}]');
INSERT INTO "journal" VALUES(19,1.79525261780938673022e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAaL1SMkA="}},{"version":1,"type":"TimerFired","timer":"grace"}]');
INSERT INTO "journal" VALUES(20,1.79525261948355984689e+09,'[{"version":1,"type":"AllocationComputed","generation":9,"job_number":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AgAAAAAAAAA="},"allocation":{"type":"Allocation","x":{"type":"array","dtype":"<f8","shape":[1,2],"writeable":true,"data":"OIGx////7z8AAAAAAAAAAA=="},"pair_jobs":{"type":"array","dtype":"<i8","shape":[0,2],"writeable":true,"data":""},"pair_index":{"type":"array","dtype":"<i8","shape":[0],"writeable":true,"data":""},"pair_x":{"type":"array","dtype":"<f8","shape":[0],"writeable":true,"data":""},"rank":null,"objective":1.999999998857744,"solver":"interior","warnings":[]}}]');
INSERT INTO "journal" VALUES(21,1.79525262102565455434e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"AwAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAEHjBOEA="}},{"version":1,"type":"TimerFired","timer":"plan"}]');
INSERT INTO "journal" VALUES(22,1.79525262237645959854e+09,'[{"version":1,"type":"LeaseEnded","lease_id":3,"reason":{"type":"EndReason","value":"released"},"steps_done":0.0}]');
INSERT INTO "journal" VALUES(23,1.79525262702596950532e+09,'[{"version":1,"type":"ProgressReported","lease_ids":{"type":"array","dtype":"<i8","shape":[1],"writeable":true,"data":"BAAAAAAAAAA="},"steps_done":{"type":"array","dtype":"<f8","shape":[1],"writeable":true,"data":"AAAAwLUsIkA="}},{"version":1,"type":"TimerFired","timer":"plan"}]');
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('asked','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79525261680337190626e+09,'');
INSERT INTO "settings" VALUES('catalogue','{"version":1,"profiles":[{"job_type":"default/done","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/fails","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"toy","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":false},{"job_type":"default/held","scale_factors":[2],"worker_types":[],"space_sharing":true,"timed":true},{"job_type":"default/later","scale_factors":[1],"worker_types":[],"space_sharing":true,"timed":true}]}',1.79525261276929259295e+09,'');
INSERT INTO "settings" VALUES('throughputs','{"version":1,"worker_types":["v100","k80"],"cells":[["toy",1,"v100",2.0,0.0,0.0,1.0,0,0,0.0,0.0],["toy",1,"k80",1.0,0.0,0.0,1.0,0,0,0.0,0.0]]}',1.79525260737264370919e+09,'');
INSERT INTO "settings" VALUES('project/vision','{"project":"vision","weight":1.0,"inner_policy":"fairness","max_workers":null,"max_jobs":5}',1.79525261432579064371e+09,'admin');
INSERT INTO "settings" VALUES('policy','{"name":"max_throughput","parameters":{},"agnostic":false,"space_sharing":false}',1.79525261680337190626e+09,'admin');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	sequence INTEGER NOT NULL, 
	state BLOB NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,12,X'7801E557598FDA5816FE2FBCBA26780163A2E907AF60C078016C43D42A5DEFFBBED2CA7F9F0B5549AA2A93A4BB552D8D34BCC0BDE79EEFEC0B7F4CEAC04D92C9C73F269D5BD5619E4D3E620F93264CE1E9765B24E076B558CEF1394E62F30F283E2789E5E78749E282DA856F3E7D221EBED2171FE03B487F984C1ED00FE8F784DF7F7F98646EEFD6CD63D6A6965B4D3EFE0B8368650BAFEEE2DF683216EEE4E384CDD3A26D5C3A49721BDCDF3D4C7C3773ABA7C347F2615254B995B8E94DE9E6894979BE8112F3FE11AAFA454D94FA402D51825A404B01647AC1C3E69917FAED13EEF14E7C98F47915BBD5E30DF666F0A4C35074F23089297402CD8182BD30B9535E8ABEDDC147516EDD19A1118EEB813669A64E9EDD28B50D12F7D1037693432F40AFDB2F65DF047D857BA5156475DC14640E7C813DA0508326A8F2D60FA087200EF4FAE4E6A5246C462814642364780AE364F2F9E1D798306A7F0DF3F717A8D0E73F36DC036152FF5F59DEE437EFFF3391C6FF87230D9B8AF39DE1F8DF4A71FC1F4971FCAFA6F89BF75FCB085415B8C5D8796E3AFFF6A89BE101B8F5AD4FB3879BA0BE0A1BF7A9D17820A95DF81A34001627FDFCA138EAF917D72BFDF34F859E7E4FA769F5CBE57FA5DFF87FFB0DD6F9D71EF1634DC3379AFE42D7AF82BF28F0E6FB1B9D7943797B7C41E7DFD2DE9C5FD0FD37A4B7C76FF4BBFD0508ABC76FBDF94FBA01FDB9136E8EBD037FE9C0EF0CFBB293FF18FA558AFD5263A8B20D0A60DFE7C19F047D93B54DD57E9FB4F4D7D87C4B3A3B8783BDAD9DC702CECB206FE1607B4F89AF42FE94E6B7F9FA6593F8B1A857A97E1B6F2F4AF2B5716FB3E8799EFDC48CBF8DFD7A2CBC87F2DF4AF05E02BD1BFA01DC097E0CFD2A937EEA9767D7C34E75876EF206248F75E316705179377C868E50FA8E5FC10D27CCC2CCFF076500DFBD6D85EFA4BDBAC544E48B77E0FEFC98B85EF35EF85C7561B2E94A45F9BB7740D340EFB8CEE3F366FA7E56F8BCA1CD9EAD70B3E6173DE3CFA7FEB7CABD1B70870E5FEFCCFC9338B8AD83F4B6F33FAFCB709A7EC9E3FB6E5BE44968DF365BB84D56995BD793CFB09EEF0BC74F42F9B735ADE0FF1250BD5B205FF9E1336CCD6EE6C3484273AC951ED8B89E5BF810EF0CBDBDE0497B39A0039BF9CC5C0F2C8BDCAF0465D6515855FA3271C6E51C89F798D819A955B20D861D02F63C44564D9DAF0E13D5C5BEA396F31947F7FDCC69453D3E54FA8EF0DB4CE99219D12732791E77BE7171FB85168D71641362A327634F5C4D3DE2027E5CE3E7DE1350274AA935BFB0719BF55A5719E61AD75223BA3BCFCF237F9483D11C36F1AC9F6B52620FDBB5D8F46D3A32D736D19A7E1CADF8A83AB4CD6D01AD76782E770B71B197571246AF92B04D57EC968C77DBF0A4206392AE428C66CFD79DB9F55D3744B5D56AB04C29D6AA6D6219728CE7AC2CD92C93071279C1C5DD88D163D15FB52C773B179354B35680A893CC65CF2FA4E4AA49FB15D1AD74BC5371AD9D717192F4E57E2D0BCB43E51F7752B74117034B62FC28E41CB860FD81D88B86D91A176BBE56A6F30D9D8F4779765962738B0074A8AB96280A08386798B6584F5907D3C385753519C788ED014D57CE904ADB1D98C7DCD9F47C254A31464296ED54503ABA042C93128CE78BAB9EA882ED05E4099974AC5F4AEEF6CC5CB7330FDD60AD1A694BAE67EDE5793C81536E4431CE7B91D2E77BBD29CFE788B0A378C576FDEA82C6364B3AEB40DAAB06C72C3C53EF0FCD5638D5CCB1A43872C3F02CA30D47CD541CE554685B2C9191C45036BA595B44816CFB3A559A25559E03ED14E0856653E5B18937CDC891575C3B905B61DEE4DD89DBE51C1AA515D31F0E52231E729F1865CB193BDA48B6C179191AE7E0EAB9E7D98E6898EA2067BA5CE315237275DE27E9580CAA7F59F09E28098622CC8F060EAA5676B44109CBED853C6582388CC78589A7ED46AFA6D6B15F0EC28E584F4D340DCDC17777AA5BCD8241743ABEDD71362A53F682929115D94C57EB2247B6A99ECF9CCB4AD30F4BA52D337193A8D874EABBD329B3A7F0FDB4BE3A88359376544D91DC6C67014F39DB043125B8B249F4832C1FA87C1157331F50F88C2FB9AB25919D1C7A4E61EA087124AA6A4B5C75D7CD5BFC2AB353EC482A58709A371E502D68F25AAD6913E623B130AA0DBE3952AD7DE8783354F7622C1D41671C33E4C4FA8166F133BB5513B5ADDB25E1709106929393EE2F9E10D1CDFE84B13D7F2A625AF0E9814B5390AF4A9B215C09618BA5C200AEB423DE398EB468E5B5210D7E461BD97E4EE6D3354FD8632A62EB69DD73B190FA0A32789C7DB450DFCB93E8BA11BC0B68E9BD72BCE82B3ED76956477B92A5F67358E30EA67218DF6042B8389FC282DE91FEBA6CF49AE64A2E11B1384EA7826D6C88015E14DDC9D1C58DE1A58202C73EBDBA1A98DA796E0BEA9E31638B2C3104A3DBDDA6B383254633B3C5D20D397763E521871327599537B3A0BABA4BDA3D240345760EDB6EB3585D4982B5009487A888E42346212C45736923DD202C8F81BE1C3A2DCA54852E6128030FE1CC363B50917748DB02F589B2021BAA652415F7E9743F6BA70B7C40F812913746ACC746EFED76F375003260B20B833249924951EEB05682E34C1A602A108DE7B7EB142F221184C152DA33DC226FA7CE82423996A6B6C7432D73DAD1DF28D87C1CB8C5712A7B5DD92E2B730EE8E58EDDE3C7DD950DD38C2957A9ED15697E68D53C4504C68CC6B5706DFA8C9E22E9E83BC2002E1E1A5146B1E6432AA59950940DA2BB54C2D8E2E9A24812E4D285361AAD56F01F6015C2363FF5AEDB822E47DDA89DB5E41BA089B294DEEA2DC00EECB927B9A1D86540E3293FDF54F1C1141B1251FCD910FA659D3A961B9A2563E5347DBD5C596DBA534144B1867CED370A7D55B10EF46772E4A4A6049D86AD08443F175AA535B948E7CD254B0447BAB4B6106C09B6144D7AC97BE71D9C099B785F976167F2B8A24839E304960FB8BE38EC8483CF6FE7FD4138498B543C22EC74168BED198EFBFF00596A90FD');
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
INSERT INTO "tokens" VALUES('admin-bfb7b1d2','6f6804da4ead9ae5c7093f076b528e5f7eab3546c1791bbdbb976af44a0f5bb4','admin','admin','[]',1.7952526016536853314e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-0b5ba46e1c0c','48ad921946f49ee1b8ed56ef17b92d5790423e3244b996286c5e2c57894f3ce6','laptop','agent','[]',1.79525260209045195575e+09,NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('t-9cab8b34a087','962aa8fcd38a90b8db8c8b5463d27350169d316b838220d3651fee0fd22946f3','ann','user','["vision"]',1.79525261735072541235e+09,NULL,NULL,NULL);
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