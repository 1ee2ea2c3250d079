"""``leasehold submit``: files of every kind, the command line, refusals."""

from __future__ import annotations

import json
import re

import pytest

from scheduler.errors import OutcomeUnknownError, StoreFullError

YAML = """
- name: one
  command: [python, one.py]
  duration: 90m
  deadline: 2h
- name: two
  command: [python, two.py]
  memory: 4GiB
  labels: {day: 2026-08-01}
"""
TOML = """
[[jobs]]
name = "one"
command = ["python", "one.py"]
deadline = 2031-01-01T00:00:00Z

[[jobs]]
name = "two"
command = ["python", "two.py"]
max_run_time = "1d"
"""
JSON = json.dumps({"name": "only", "command": ["python", "only.py"], "total_steps": 5})


def test_a_command_behind_two_dashes_is_submitted_as_it_is(scheduler, leasehold):
    ran = leasehold("submit", "--workers", "2", "--", "python", "train.py", "--lr", "0.1", "--help")
    assert (ran.code, ran.out, ran.err) == (0, "job-1\n", "")
    row = scheduler.service.store.job("job-1")
    assert row.spec["command"] == ["python", "train.py", "--lr", "0.1", "--help"]
    assert (row.name, row.scale_factor) == ("train", 2)


def test_a_range_of_workers_is_given_by_its_ends(scheduler, leasehold):
    ran = leasehold("submit", "--min-workers", "2", "--max-workers", "8", "--", "./train")
    assert ran.code == 0, ran.err
    assert scheduler.service.store.job(ran.out.strip()).spec["scale_factors"] == [2, 4, 8]
    assert "2, 4, 8" in leasehold("job", ran.out.strip()).out
    refused = leasehold("submit", "--min-workers", "2", "--", "./train")
    assert refused.code != 0
    assert "--max-workers" in refused.err
    both = leasehold("submit", "--workers", "2", "--max-workers", "4", "--", "./train")
    assert both.code != 0
    assert "--workers" in both.err


GPT2 = {
    "model_type": "gpt2",
    "n_layer": 24,
    "n_embd": 1024,
    "n_head": 16,
    "vocab_size": 50257,
    "n_positions": 1024,
}
PLANNED = """
name: gpt2
command: [./train]
total_steps: 100
scale_factor: [1, 2]
model: {batch: 64, config: models/gpt2.json}
"""


@pytest.fixture
def models(scheduler, tmp_path):
    """Return a folder with models, a file of layers beside it, and jobs with each."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gpt2.json").write_text(json.dumps(GPT2))
    layers = "layers:\n- {parameters: 1e6, flops: 1e9, kept_bytes: 1e6, output_bytes: 1e4}\n"
    (tmp_path / "models" / "layers.yaml").write_text(layers)
    (tmp_path / "mine.yaml").write_text("batch: 8\nlayers: models/layers.yaml\n")
    (tmp_path / "job.yaml").write_text(PLANNED)
    return tmp_path


def test_a_job_is_planned_by_the_content_of_its_models_files(scheduler, leasehold, models):
    ran = leasehold("submit", models / "job.yaml")
    assert ran.code == 0, ran.err
    row = scheduler.service.store.job(ran.out.strip())
    assert json.loads(row.spec["model"]) == {"batch": 64, "config": GPT2}
    shown = leasehold("job", row.job_id, "--json")
    assert json.loads(shown.out)["spec"]["model"] == {"batch": 64, "config": GPT2}
    ran = leasehold("submit", "--model", models / "mine.yaml", "--steps", "9", "--", "./train")
    assert ran.code == 0, ran.err
    row = scheduler.service.store.job(ran.out.strip())
    model = json.loads(row.spec["model"])
    assert (model["batch"], model["layers"][0]["parameters"]) == (8, 1e6)
    (models / "layers.csv").write_text("parameters,flops,kept_bytes,output_bytes\n1e6,,1e6,1e4\n")
    (models / "job.yaml").write_text(
        PLANNED.replace("config: models/gpt2.json", "layers: layers.csv")
    )
    ran = leasehold("submit", models / "job.yaml")
    assert ran.code == 0, ran.err
    (layer,) = json.loads(scheduler.service.store.job(ran.out.strip()).spec["model"])["layers"]
    assert layer == {"parameters": 1e6, "kept_bytes": 1e6, "output_bytes": 1e4}
    again = leasehold("submit", "--model", row.spec["model"], "--steps", "9", "--", "./train")
    assert scheduler.service.store.job(again.out.strip()).spec["model"] == row.spec["model"]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("models/gpt2.json", "a config.json without a batch"),
        ("{batch: 64, config: nothing.json}", "nothing.json"),
        ("{batch: 64}", "neither config nor layers"),
        ("{batch: 8, layers: 'models:layers'}", "there is no such file"),
        ("{batch: 0, config: models/gpt2.json}", "batch"),
        ("{batch: 64, size: 1, config: models/gpt2.json}", "size"),
        ("{batch: 64, config: {model_type: mamba}}", "mamba"),
        ("3", "3"),
    ],
)
def test_an_unusable_model_is_refused_by_name(leasehold, models, model, told):
    job = models / "job.yaml"
    job.write_text(PLANNED.replace("{batch: 64, config: models/gpt2.json}", model))
    ran = leasehold("submit", job)
    assert ran.code == 2
    assert "model" in ran.err
    assert told in ran.err


def test_a_model_and_what_contradicts_it_are_refused(leasehold, models):
    ran = leasehold("submit", "--throughput", "v100=2", models / "job.yaml")
    assert ran.code == 2
    assert "give model or throughputs, not both" in ran.err
    (models / "job.yaml").write_text(PLANNED.replace("total_steps: 100\n", ""))
    ran = leasehold("submit", models / "job.yaml")
    assert ran.code == 2
    assert "model needs total_steps" in ran.err


def test_every_option_reaches_the_job(scheduler, leasehold, monkeypatch, tmp_path):
    monkeypatch.setenv("MINE", "from outside")
    monkeypatch.chdir(tmp_path)
    first = leasehold("submit", "--", "./before").out.strip()
    options = (
        "--name n --project p --workers 4,1,2 --type v100,p100 --type k80 --steps 10 --job-type t "
        "--throughput v100=12.5,p100=3 --weight 2 --deadline 2h --max-run-time 1d --retries 0 "
        "--no-retry-oom --checkpoint-dir . --env A=b=c --env MINE --label k=v --entity e "
        f"--after {first} --hold --working-dir sub/.. --image i:1 --notice 10 --grace 1m "
        "--restart 30s --progress-regex step(\\d+) --memory 1GiB "
        "--cpus 1.5 --no-space-sharing --client-id mine"
    )
    ran = leasehold("submit", *options.split(), "--", "python", "-u", "-m", "x")
    assert ran.code == 0, ran.err
    row = scheduler.service.store.job(ran.out.strip())
    wanted = {
        "name": "n",
        "project": "p",
        "scale_factors": [1, 2, 4],
        "worker_types": ["v100", "p100", "k80"],
        "total_steps": 10.0,
        "job_type": "t",
        "throughputs": {"v100": 12.5, "p100": 3.0},
        "weight": 2.0,
        "max_run_time_s": 86400.0,
        "max_failures": 0,
        "retry_oom": False,
        "checkpoint_dir": str(tmp_path),
        "env": {"A": "b=c", "MINE": "from outside"},
        "labels": {"k": "v"},
        "entity": "e",
        "depends_on": [first],
        "working_dir": str(tmp_path),
        "image": "i:1",
        "notice_s": 10.0,
        "grace_s": 60.0,
        "restart_s": 30.0,
        "progress_regex": "step(\\d+)",
        "memory_bytes": 2**30,
        "cpus": 1.5,
        "space_sharing": False,
    }
    assert {key: row.spec[key] for key in wanted} == wanted
    assert row.status == "held"
    assert 7190 < row.deadline_s - row.submitted_s < 7300
    assert scheduler.service.store.jobs_of_keys("anonymous", ["mine"])["mine"].job_id == row.job_id
    # A job with an image may run in a pod, and the agent reads no files of pods.
    ran = leasehold("submit", "--progress-file", "steps.txt", "--", "./train")
    assert scheduler.service.store.job(ran.out.strip()).spec["progress_file"] == "steps.txt"


TWO = "name: a\ncommand: [x]\n---\nname: b\ncommand: [x]\n"


@pytest.mark.parametrize(("name", "text", "names"), [
    ("jobs.yaml", YAML, ["one", "two"]),
    ("jobs.yml", TWO, ["a", "b"]),
    ("jobs.toml", TOML, ["one", "two"]),
    ("jobs.json", JSON, ["only"]),
])  # fmt: skip
def test_files_of_every_kind_are_taken(name, text, names, *, scheduler, leasehold, tmp_path):
    file = tmp_path / name
    file.write_text(text)
    ran = leasehold("submit", str(file), "--json")
    assert ran.code == 0, ran.err
    ids = [job["job_id"] for job in json.loads(ran.out)["jobs"]]
    assert [scheduler.service.store.job(i).name for i in ids] == names


def test_words_for_times_and_sizes_become_numbers(scheduler, leasehold, tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text(YAML)
    assert leasehold("submit", str(file)).code == 0
    one, two = (scheduler.service.store.job(f"job-{i}") for i in (1, 2))
    assert one.spec["duration_s"] == 5400
    assert 7190 < one.deadline_s - one.submitted_s < 7300
    assert (two.spec["memory_bytes"], dict(two.labels)) == (2**32, {"day": "2026-08-01"})


def test_options_change_every_job_of_a_file(scheduler, leasehold, tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text(YAML)
    ran = leasehold("submit", str(file), "--weight", "3", "--label", "k=v", "--deadline", "1h")
    assert ran.code == 0, ran.err
    one, two = (scheduler.service.store.job(f"job-{i}") for i in (1, 2))
    assert one.weight == two.weight == 3
    assert dict(two.labels) == {"day": "2026-08-01", "k": "v"}
    assert one.deadline_s - one.submitted_s < 3700


def test_standard_input_is_a_file_too(scheduler, leasehold, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(JSON))
    assert leasehold("submit", "-").out == "job-1\n"


def test_an_array_is_submitted_as_one_request(scheduler, leasehold):
    ran = leasehold("submit", "--array", "3", "--", "./work")
    assert ran.out.split() == ["job-1", "job-2", "job-3"]
    assert scheduler.service.store.job("job-3").name == "work[2]"


def test_many_jobs_go_in_several_requests_and_keep_their_order(scheduler, leasehold, tmp_path):
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([{"name": f"n{i}", "command": ["x"]} for i in range(1100)]))
    ran = leasehold("submit", str(file), "--json")
    found = json.loads(ran.out)["jobs"]
    assert [job["index"] for job in found] == list(range(1100))
    assert scheduler.service.store.job(found[1099]["job_id"]).name == "n1099"


def test_submitting_again_under_a_client_id_changes_nothing(scheduler, leasehold):
    first = leasehold("submit", "--client-id", "c", "--", "./work")
    again = leasehold("submit", "--client-id", "c", "--", "./work")
    assert first.out == again.out == "job-1\n"
    assert "submitted before" in again.err
    other = leasehold("submit", "--client-id", "c", "--", "./other")
    assert other.code == 6


def test_every_bad_field_is_named_on_a_line_of_its_own(scheduler, leasehold, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("name: '*'\ncommand: []\nscale_factor: [0]\nwight: 1\nenv: {1a: b}\n")
    ran = leasehold("submit", str(file))
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert lines[0].endswith("name, command, env.1a, scale_factor[0], wight cannot be used:")
    near = "wight is 1: unknown field; did you mean 'weight'?"
    for field in ("name is", "command is", "scale_factor[0] is 0", near):
        assert any(line.startswith(f"  {field}") for line in lines[1:]), (field, lines)


def test_elements_of_an_array_are_refused_in_one_line(scheduler, leasehold):
    ran = leasehold("submit", "--workers", "500", "--array", "3", "--", "x")
    assert (ran.code, ran.out) == (6, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("leasehold: the job was not taken: needs 500 workers")
    assert line.endswith(" (3 of 3 elements)")


def test_a_bad_job_of_a_file_does_not_spoil_the_others(scheduler, leasehold, tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text("- {name: a, command: [x]}\n- {name: b, command: [x], cpus: -1}\n")
    ran = leasehold("submit", str(file))
    assert (ran.code, ran.out) == (1, "job-1\n")
    assert "job 1 was not taken" in ran.err
    assert "  cpus is -1" in ran.err
    ran = leasehold("submit", str(file), "--json")
    items = json.loads(ran.out)["jobs"]
    assert [bool(item["error"]) for item in items] == [False, True]
    assert items[1]["index"] == 1


def test_a_job_that_can_never_run_is_refused_with_6(scheduler, leasehold, tmp_path):
    ran = leasehold("submit", "--workers", "9", "--", "./work")
    assert ran.code == 6
    assert "needs 9 workers" in ran.err
    file = tmp_path / "jobs.yaml"
    file.write_text("[{name: a, command: [x]}, {name: b, command: [x]}]")
    assert leasehold("submit", str(file), "--workers", "9").code == 6


def test_a_dependency_that_is_not_there_ends_with_5(serve, leasehold, monkeypatch):
    server = serve(auth=True)
    # A user confined to a project gets refusals with visible names only.
    monkeypatch.setenv("LEASEHOLD_TOKEN", server.token("user", projects=("vision",)))
    first = leasehold("submit", "--", "./work").out.strip()
    ran = leasehold("submit", "--after", f"{first},nosuch", "--", "./work")
    assert (ran.code, ran.out) == (5, "")
    assert "there is no job 'nosuch', which --after names" in ran.err
    assert leasehold("submit", "--after", first, "--", "./work").code == 0


def test_a_dry_run_tells_where_it_could_run_and_submits_nothing(scheduler, leasehold, tmp_path):
    ran = leasehold("submit", "--dry-run", "--", "./work")
    assert ran.code == 0
    assert "work fits" in ran.out
    assert "v100" in ran.out
    ran = leasehold("submit", "--dry-run", "--duration", "1h", "--", "./work")
    assert re.search(r"^  starts: +\S.*\n(  .*\n)*  forecast: +by a replay", ran.out, re.MULTILINE)
    ran = leasehold("submit", "--dry-run", "--duration", "1h", "--json", "--", "./work")
    assert json.loads(ran.out)["jobs"][0]["fit"]["starts_s"] > 0
    ran = leasehold("submit", "--dry-run", "--workers", "9", "--json", "--", "./work")
    assert ran.code == 6
    assert json.loads(ran.out)["jobs"][0]["fit"]["fits"] is False
    file = tmp_path / "jobs.yaml"
    file.write_text("- {name: a, command: [x]}\n- {name: b, command: []}\n")
    ran = leasehold("submit", "--dry-run", str(file))
    assert ran.code == 1
    assert "command is" in ran.err
    file.write_text("- {name: a, command: 3}\n- {name: b, command: []}\n")
    assert leasehold("submit", "--dry-run", str(file)).code == 2
    assert leasehold("submit", "--dry-run", str(file), "--workers", "9").code == 2
    assert scheduler.service.store.job("job-1") is None


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "give files, or a command"),
    (["x.yaml", "--", "y"], "not both"),
    (["x.yaml"], "no file 'x.yaml'"),
    (["--workers", "a", "--", "x"], "--workers is 'a'"),
    (["--env", "NOWHERE", "--", "x"], "NOWHERE"),
    (["--label", "k", "--", "x"], "--label is 'k'"),
    (["--label", "k=1", "--label", "k=2", "--", "x"], "given twice"),
    (["--throughput", "v100=fast", "--", "x"], "give a finite number"),
    (["--deadline", "soon", "--", "x"], "--deadline is 'soon'"),
    (["--grace", "5x", "--", "x"], "--grace is '5x'"),
    (["--memory", "much", "--", "x"], "--memory is 'much'"),
    (["--type", "", "--", "x"], "--type is '', with an empty part"),
    (["--type", "v100,,k80", "--", "x"], "--type is 'v100,,k80'"),
    (["--after", "a,", "--", "x"], "--after is 'a,'"),
])  # fmt: skip
def test_what_cannot_be_used_is_named_before_anything_is_sent(arguments, said, leasehold):
    ran = leasehold("submit", *arguments)  # no scheduler is there to ask
    assert ran.code == 2
    assert said in ran.err


def test_a_rule_about_two_options_names_both_of_them(scheduler, leasehold):
    ran = leasehold("submit", "--steps", "5", "--duration", "3s", "--", "./x")
    assert ran.code == 2
    assert "the request: give --steps or --duration, not both" in ran.err


def test_a_command_in_one_text_is_shown_as_the_list_that_it_should_be(
    scheduler, leasehold, tmp_path
):
    file = tmp_path / "a.yaml"
    file.write_text("{name: a, command: python train.py --data 'my data'}")
    ran = leasehold("submit", str(file))
    assert ran.code == 2
    assert 'such as ["python", "train.py", "--data", "my data"]' in ran.err
    file.write_text('{name: a, command: "echo \'"}')  # a quote without its end
    assert 'such as ["python", "train.py"]' in leasehold("submit", str(file)).err


def bomb(form, first="[x]"):
    """Write a kilobyte of YAML that stands for 9**20 values."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} " + form.format(", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 21)]
    return "\n".join(lines)


@pytest.mark.parametrize(("name", "text", "said"), [
    ("a.yaml", "", "holds no job"),
    ("a.yaml", "x: [", "a.yaml:"),
    ("a.yaml", "- 3", "job 0 is '3'"),
    ("a.yaml", "{name: a, command: [x], duration: 1h, duration_s: 3}", "both duration and"),
    ("a.yaml", "{name: a, command: [x], deadline: 1h, deadline_s: 3}", "both deadline and"),
    ("a.yaml", "{name: a, command: [x], deadline: never}", "deadline is 'never'"),
    ("a.yaml", "name: a\ncommand: [x]\ndeadline: 18:30", "deadline is '18:30'; give a span"),
    ("a.yaml", "name: a\ncommand: [x]\ndeadline: 1796000000", "or a date; give a span"),
    ("a.toml", "name = 'a'\ncommand = ['x']\ndeadline = 18:30:00", "deadline is '18:30:00'"),
    ("a.yaml", "name: a\ncommand: [x]\nduration: 1:30", "duration is '1:30'; give seconds"),
    ("a.yaml", "{name: a, command: [x], weight: .nan}", "a.yaml: weight is nan; give a finite"),
    ("a.json", '{"name": "a", "throughputs": {"v100": -Infinity}}', "throughputs.v100 is -inf"),
    ("a.json", '{"name": "\\ud800", "command": ["x"]}', "name is '\\ud800', which is no Unicode"),
    ("a.json", "[" * 100_000, "nested too deeply"),
    ("a.json", '{"env":' * 300 + "1" + "}" * 300, "nested deeper than 60 levels"),
    ("a.yaml", "[" * 9_000 + "]" * 9_000, "nested too deeply"),
    ("a.yaml", "[" * 100_000, "nested too deeply"),  # the C loader's stack ends before
    ("a.yaml", "{a: " * 100_000, "nested too deeply"),
    ("a.yaml", "&a [*a]", "line 1 contains itself by an alias"),
    ("a.yaml", "x: 1\nname: &a [{b: *a}]", "line 2 contains itself by an alias"),
    ("a.yaml", bomb("[{}]"), "stands for more than 1000000 values once its aliases are written"),
    ("a.yaml", bomb("[{{k: [{}]}}]"), "stands for more than 1000000 values"),
    ("a.yaml", bomb("{{<<: [{}]}}", "{k: 1}"), "stands for more than 1000000 values"),
    ("a.toml", "a = " + "[" * 20_000, "nested too deeply"),
    ("a.json", "{", "a.json:"),
    ("a.toml", "x", "a.toml:"),
    ("a.yaml", "- name: a\n  env:\n    K: 1\n    K: 2", "line 4: key 'K' is there already"),
    ("a.yaml", "{name: a, name: b}", "line 1: key 'name' is there already, in line 1"),
    ("a.json", '{"name": "a", "name": "b"}', "key 'name' is there twice"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_name(name, text, said, leasehold, tmp_path):
    file = tmp_path / name
    file.write_text(text)
    ran = leasehold("submit", str(file))
    assert ran.code == 2
    assert said in ran.err


def test_a_key_of_what_is_merged_may_be_there_again(scheduler, leasehold, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(
        "- &a {name: a, command: [x], weight: 2}\n- &b {<<: *a, name: b}\n- {<<: *b, name: c}\n"
    )
    assert leasehold("submit", str(file)).out.split() == ["job-1", "job-2", "job-3"]
    rows = [scheduler.service.store.job(f"job-{i}") for i in (1, 2, 3)]
    assert [(row.name, row.weight) for row in rows] == [("a", 2), ("b", 2), ("c", 2)]


def test_a_file_that_is_no_text_is_refused(leasehold, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in leasehold("submit", str(file)).err


def test_waiting_ends_with_0_only_where_all_completed(scheduler, leasehold, until):
    import threading

    def finish() -> None:
        until(lambda: scheduler.service.store.job("job-2") is not None)
        scheduler.do(scheduler.service.finish, "job-1")
        scheduler.do(scheduler.service.finish, "job-2")

    other = threading.Thread(target=finish)
    other.start()
    ran = leasehold("submit", "--array", "2", "--wait", "--", "./work")
    other.join()
    assert ran.code == 0, ran.err

    def cancel() -> None:
        until(lambda: scheduler.service.store.job("job-3") is not None)
        row = scheduler.service.store.job("job-3")
        scheduler.do(scheduler.service._replace, row, "job_cancelled", "", status="cancelled")

    other = threading.Thread(target=cancel)
    other.start()
    ran = leasehold("submit", "--wait", "--", "./work")
    other.join()
    assert ran.code == 1
    assert "job-3 cancelled" in ran.err


def test_watching_shows_what_happens_until_the_end(scheduler, leasehold, until):
    import threading

    def finish() -> None:
        until(lambda: scheduler.service.store.job("job-1") is not None)
        scheduler.do(scheduler.service.run, "job-1")
        scheduler.do(scheduler.service.finish, "job-1")

    other = threading.Thread(target=finish)
    other.start()
    ran = leasehold("submit", "--watch", "--json", "--", "./work")
    other.join()
    assert ran.code == 0, ran.err
    kinds = [json.loads(line)["kind"] for line in ran.out.splitlines()]
    assert kinds == ["job_submitted", "lease_granted", "job_completed"]


@pytest.mark.parametrize(("command", "name"), [
    ("./work", "work"), ("python -u train.py --lr 1", "train"), ("sh -c true", "sh"),
    ("python -m my.module", "my-module"), ("python", "python"), ("./@", "job"),
    ("./shuffle data.csv", "shuffle"), ("pythonic x", "pythonic"),
    ("/usr/bin/python3.12 a.py", "a"),
    ("torchrun --nproc-per-node 4 vision/train.py --lr 1", "vision-train"),
    ("torchrun -m vision.train", "vision-train"), ("torchrun --help", "torchrun"),
    ("torchrun -m vision.train data.py", "vision-train"),
    ("python -m torch.distributed.run --nnodes 2 speech/main.py", "speech-main"),
    ("accelerate launch resnet.py", "resnet"), ("env A=1 python x.py", "x"),
    ("bash -ec 'python train.py'", "bash"), ("python ../train.py", "train"),
])  # fmt: skip
def test_a_job_is_named_after_its_program(command, name, scheduler, leasehold):
    assert leasehold("submit", "--", *command.split()).code == 0
    assert scheduler.service.store.job("job-1").name == name


def test_bad_fields_are_called_what_the_user_called_them(scheduler, leasehold, tmp_path):
    ran = leasehold("submit", "--name", "", "--workers", "0", "--env", "1a=b", "--", "x")
    assert ran.code == 2
    assert "'errors'" not in ran.err
    for line in ('--name is "": must not be empty', "--workers is 0: ", '--env 1a is "1a"'):
        assert f"  {line}" in ran.err
    file = tmp_path / "job.yaml"
    file.write_text("{name: a, command: [x], duration: 0s, scale_factor: 0, weight: 0}")
    ran = leasehold("submit", str(file), "--retries", "99999")
    for line in ("duration is 0", "scale_factor is 0", "weight is 0", "--retries is 99999"):
        assert f"  {line}" in ran.err
    for deadline in ("--deadline", "deadline"):
        file.write_text("{name: a, command: [x], deadline: 2001-01-01T00:00:00Z}")
        arguments = (
            [str(file)] if deadline == "deadline" else ["--deadline", "2001-01-01", "--", "x"]
        )
        ran = leasehold("submit", *arguments)
        assert f"{deadline} is 200" in ran.err  # a time of 2000 or 2001, by zone
        assert "which has passed (it is 20" in ran.err


def test_words_that_are_no_utf_8_are_refused(leasehold):
    for words in (
        ["submit", "--", "./\udcff"],
        ["job", "\udcff"],
        ["submit", "-n", "\udcff", "--", "x"],
    ):
        ran = leasehold(*words)
        assert ran.code == 2
        assert "\\udcff" in ran.err
        assert "UTF-8" in ran.err


@pytest.mark.parametrize("command", ["job", "explain", "logs", "watch"])
def test_an_empty_job_id_is_refused(command, leasehold):
    ran = leasehold(command, "")
    assert ran.code == 2
    assert "the job id is empty" in ran.err


MISTAKEN = """
name: 1
command: [python, train.py, 3]
env: {A: yes, B: 1.5}
grace: soon
memory: much
scale_factor: 0
total_steps: 5
duration_s: 5
"""


def test_all_mistakes_of_a_file_are_told_at_once(scheduler, leasehold, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(MISTAKEN)
    ran = leasehold("submit", str(file))
    assert (ran.code, ran.out) == (2, "")
    first, *lines = ran.err.splitlines()
    assert first == f"leasehold: nothing was submitted, for {len(lines)} mistakes:"
    for said in (
        f"  {file}: grace is 'soon'; give seconds",
        f"  {file}: memory is 'much'; give bytes",
        '  name is 1: must be text; put it in quotes, such as "1"',
        '  command[2] is 3: must be text; put it in quotes, such as "3"',
        '  env.A is true: must be text; put it in quotes, such as "true", "yes" or "on"',
        '  env.B is 1.5: must be text; put it in quotes, such as "1.5"',
        "  scale_factor is 0: ",
        "  the request: give total_steps or duration_s, not both",
    ):
        assert sum(line.startswith(said) for line in lines) == 1, lines


def test_the_mistakes_of_several_jobs_are_told_with_the_job(
    serve, leasehold, tmp_path, monkeypatch
):
    scheduler = serve(auth=True)
    monkeypatch.setenv("LEASEHOLD_TOKEN", scheduler.token("user", projects=("a", "default")))
    file = tmp_path / "a.yaml"
    file.write_text(
        "jobs: [{name: a, command: [x], duration: soon}, {name: 1, command: [x]}, "
        "{name: c, command: [x], depends_on: [nothing], image: i, kubernetes: {template: {a: 1}}}]"
    )
    ran = leasehold("submit", str(file))
    assert ran.code == 2
    assert "duration is 'soon'" in ran.err
    assert "  job 1: name is 1: must be text" in ran.err
    assert "  job 2: depends_on[0] is " in ran.err
    assert "  job 2: kubernetes.template" in ran.err
    assert scheduler.service.store.job("job-1") is None


def test_mistakes_are_told_where_no_scheduler_answers(leasehold, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("{name: a, command: [x], duration: soon, memory: much}")
    server = ["--server", "http://127.0.0.1:9", "--retry-for", "0s"]
    ran = leasehold("submit", *server, str(file))
    assert (ran.code, "for 2 mistakes" in ran.err) == (2, True)


def test_a_project_that_is_new_is_remarked_upon(scheduler, leasehold):
    ran = leasehold("submit", "--project", "vison", "--array", "2", "--", "./x")
    assert (ran.code, ran.out) == (0, "job-1\njob-2\n")
    assert ran.err == "leasehold: project 'vison' had no jobs before these\n"
    assert leasehold("submit", "--project", "vison", "--", "./x").err == ""
    assert leasehold("submit", "--", "./x").err == ""


def test_a_submission_that_may_be_stored_says_how_no_job_comes_twice(scheduler, leasehold):
    scheduler.service.failure = OutcomeUnknownError(StoreFullError("full"))
    ran = leasehold("submit", "--retry-for", "0.1s", "--", "ls")
    assert ran.code == 3
    (key,) = re.findall(r"the client id is (\w+): with --client-id \1 no job comes twice", ran.err)
    given = leasehold("submit", "--retry-for", "0.1s", "--client-id", key, "--", "ls")
    assert (given.code, "no job comes twice" in given.err) == (3, False)
    scheduler.service.failure = None
    ids = [leasehold("submit", "--client-id", key, "--", "ls").out for _ in range(2)]
    assert ids[0] == ids[1]
