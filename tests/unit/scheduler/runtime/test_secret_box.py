"""Secret variables are sealed for one variable of one job, by keys that can be changed."""

import base64
import logging

import pytest

from leasehold.cli.local.secrets import new_key_file
from leasehold.config.load import load_config
from leasehold.config.show import setting_rows
from leasehold.daemon.secrets.secret_keys import secret_box
from leasehold_testing.memory_store import MemoryStore
from scheduler.control.facts.facts import JobsSubmitted
from scheduler.control.facts.requests import Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import ConfigError, InputError
from scheduler.runtime.intake import digest_of, submission_fact
from scheduler.secret_box import SecretBox, id_in, key_id, new_key, parse_keys

PASSWORD = "hunter2"


def key():
    return parse_keys(new_key(), where="here")[0]


def box(*keys):
    return SecretBox(lambda: keys, where="here")


def job(**values):
    return JobSpec(name="train", command=("x",), secret_env=values or {"PASSWORD": PASSWORD})


def test_what_is_sealed_for_a_job_opens_for_it():
    mine = box(key())
    kept = mine.sealed(job(A="ä\n", B=""), "train-1").secret_env
    assert "ä" not in str(kept)
    assert mine.opened(kept, "train-1") == {"A": "ä\n", "B": ""}


def test_the_same_value_is_never_sealed_alike():
    mine = box(key())
    assert len({mine.sealed(job(), "j").secret_env["PASSWORD"] for _ in range(20)}) == 20


@pytest.mark.parametrize("job_id", ["train-2", "train-1\0", ""])
def test_it_opens_for_no_other_job(job_id):
    mine = box(key())
    kept = mine.sealed(job(), "train-1").secret_env
    with pytest.raises(InputError, match="was not stored for this job"):
        mine.opened(kept, job_id)


def test_it_opens_under_no_other_name_and_not_altered():
    mine = box(key())
    sealed = mine.sealed(job(), "j").secret_env["PASSWORD"]
    head, _, data = sealed.rpartition(".")
    raw = bytearray(base64.urlsafe_b64decode(data))
    raw[-1] ^= 1
    altered = f"{head}.{base64.urlsafe_b64encode(raw).decode()}"
    for kept in ({"OTHER": sealed}, {"PASSWORD": altered}, {"PASSWORD": f"{head}.%%%"}):
        with pytest.raises(InputError, match="was not stored"):
            mine.opened(kept, "j")


def test_older_keys_open_and_the_first_one_seals():
    old, new = key(), key()
    kept = box(old).sealed(job(), "j").secret_env
    both = box(new, old)
    assert both.opened(kept, "j") == {"PASSWORD": PASSWORD}
    anew = both.resealed(kept, "j")
    assert id_in(anew["PASSWORD"]) == key_id(new)
    assert box(new).opened(anew, "j") == {"PASSWORD": PASSWORD}
    assert both.resealed(anew, "j") is None


def test_a_lost_key_is_named_with_the_jobs_that_need_it():
    lost, other = key(), key()
    kept = {name: box(lost).sealed(job(), name).secret_env for name in ("a", "b")}
    kept["c"] = box(other).sealed(job(), "c").secret_env
    told = box(other).lost(kept.items())
    assert f"key {key_id(lost)} of 2 jobs (a, b)" in told
    assert "Put the keys back (here)" in told
    assert box(other, lost).lost(kept.items()) == ""
    with pytest.raises(InputError, match=f"with key {key_id(lost)}, which this scheduler does not"):
        box(other).opened(kept["a"], "a")


def test_nothing_is_sealed_without_a_key():
    assert not SecretBox().can_seal
    with pytest.raises(InputError, match="leasehold secrets new-key"):
        SecretBox().sealed(job(), "j")
    assert SecretBox().sealed(JobSpec(name="a", command=("x",)), "j").secret_env == {}


@pytest.mark.parametrize(
    "text", ["short", "a" * 43 + "\u00e4", base64.b64encode(b"x" * 31).decode()]
)
def test_what_is_no_key_is_refused_and_not_quoted(text):
    with pytest.raises(InputError, match="there: key 2 is not 32 bytes") as caught:
        parse_keys(f"{new_key()}\n{text}", where="there")
    assert text not in str(caught.value)


def test_keys_stand_on_lines_or_behind_commas_with_remarks():
    one, two = new_key(), new_key()
    found = parse_keys(f"# ours\n{one},{two}  # of May\n\n", where="there")
    assert [base64.urlsafe_b64encode(k).decode() for k in found] == [one, two]


def test_no_text_about_a_job_shows_a_value():
    spec = job()
    assert PASSWORD not in repr(spec)
    assert PASSWORD not in repr(Submission(spec=spec, owner="me"))


def test_a_submission_is_sealed_before_anything_decides_on_it():
    mine, store = box(key()), MemoryStore()
    items = (Submission(spec=job(), owner="me"), Submission(spec=job(), owner="me", job_id="own"))
    fact = submission_fact(store, items, actor="me", box=mine)
    assert isinstance(fact, JobsSubmitted)
    assert PASSWORD not in str([item.spec.secret_env for item in fact.submissions])
    for item, job_id in zip(fact.submissions, fact.job_ids, strict=True):
        assert mine.opened(item.spec.secret_env, job_id) == {"PASSWORD": PASSWORD}


def test_what_tells_repetitions_apart_tells_nothing_of_values():
    assert digest_of(job(A="1")) == digest_of(job(A="2")) != digest_of(job(B="1"))
    plain = JobSpec(name="train", command=("x",))
    assert digest_of(plain) != digest_of(job(A="1"))


# -- keys of a configuration -----------------------------------------------------------------------


def configured(tmp_path, **settings):
    texts = {f"secrets.{k}": (f"--set secrets.{k}", str(v)) for k, v in settings.items()}
    texts["state_dir"] = ("--state-dir", str(tmp_path))
    return load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}, texts=texts).config


def test_a_key_file_is_read_again_when_it_has_changed(tmp_path):
    path, old, new = tmp_path / "keys", new_key(), new_key()
    path.write_text(old)
    path.chmod(0o600)
    mine = secret_box(configured(tmp_path, key_file=path))
    kept = mine.sealed(job(), "j").secret_env
    path.rename(tmp_path / "away")
    assert not mine.can_seal
    path.write_text(f"{new}\n{old}")
    assert mine.opened(kept, "j") == {"PASSWORD": PASSWORD}
    assert id_in(mine.sealed(job(), "j").secret_env["PASSWORD"]) == key_id(
        parse_keys(new, where="")[0]
    )


def test_a_missing_key_file_is_told_and_an_open_one_too(tmp_path, caplog):
    path = tmp_path / "keys"
    with caplog.at_level(logging.WARNING):
        assert not secret_box(configured(tmp_path, key_file=path)).can_seal
    assert f"leasehold secrets new-key {path}" in caplog.text
    path.write_text(new_key())
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert secret_box(configured(tmp_path, key_file=path)).can_seal
    assert "other users of this machine" in caplog.text


def test_keys_of_the_environment_are_masked_where_settings_are_shown(tmp_path):
    text = new_key()
    loaded = load_config(
        environment={
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
            "LEASEHOLD_SECRETS__KEYS": text,
        }
    )
    assert secret_box(loaded.config).can_seal
    assert text not in str(list(setting_rows(loaded)))


def test_keys_in_both_ways_and_broken_ones_are_refused(tmp_path):
    with pytest.raises((InputError, ConfigError), match="both set"):
        secret_box(configured(tmp_path, key_file=tmp_path / "k", keys=new_key()))
    with pytest.raises(InputError, match=r"secrets\.keys: key 1"):
        secret_box(configured(tmp_path, keys="short"))


def test_a_key_file_in_a_folder_that_is_not_there_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*none; make it"):
        new_key_file(tmp_path / "none" / "secret.keys")
