"""Messages of webhooks, their order, and webhooks with a receiver that is away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from leasehold_testing.hooks import KEY, FakePost
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.stored import entry, history_row, job_row
from scheduler.clock import WallClock
from scheduler.errors import AdmissionError, ConflictError, InputError, NotFoundError
from scheduler.runtime.resealing import reseal_secrets
from scheduler.secret_box import SecretBox
from scheduler.webhooks.delivery import Webhooks
from scheduler.webhooks.messages import Template, message_of, new_secret, sign_message
from scheduler.webhooks.webhooks import Posted, WebhookRules, stored_webhooks

QUICK = WebhookRules(first_pause_s=0.01, longest_pause_s=0.02, pause_after_s=600.0, look_s=0.01)
URL = "https://hooks.example.com/services/T0/B0/secret-path"
WAIT_S = 60.0


class World:
    """A store with a leader, and webhooks over it."""

    def __init__(self, *, rules=QUICK, store=None, box=None):
        self.store = store or MemoryStore()
        self.token = self.store.acquire_leadership("test", now_s=0.0, ttl_s=1e12).token
        self.post = FakePost()
        self.notes = []
        self.hooks = Webhooks(
            self.store,
            WallClock(),
            box or SecretBox(lambda: (KEY,)),
            None,
            news=self._news,
            note=self._note,
            post=self.post,
            rules=rules,
        )

    async def _news(self, after_id, _wait_s):
        await self.until(lambda: self.store.head().event_id > after_id)
        return self.store.head().event_id

    async def _note(self, kind, subject_kind, subject, *, actor, data):
        self.notes.append((kind, subject, actor, dict(data)))

    def happens(self, *rows):
        return self.store.append_history(rows).event_id

    async def until(self, there):
        async with asyncio.timeout(WAIT_S):
            while not there():  # noqa: ASYNC110 - the awaited state sets no event
                await asyncio.sleep(0.005)

    async def arrived(self, count):
        await self.until(lambda: len(self.post.arrived) >= count)
        return [json.loads(message.body)["data"]["event_id"] for message in self.post.arrived]


@contextlib.asynccontextmanager
async def leading(world):
    task = asyncio.create_task(world.hooks.run(world.token))
    await world.until(lambda: world.hooks._token is not None)
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def line(kind, subject_kind, subject="", **data):
    return history_row(subject, kind, subject_kind=subject_kind, data=data)


def failed(subject="a", **data):
    return line("job_failed", "job", subject, **data)


def job(number, job_id, **fields):
    return job_row(number, job_id=job_id, **fields)


async def add(world, name="chat", *, on=("job_failed",), project=None, **more):
    fields = {"template": Template.JSON, "actor": "olga"} | more
    return await world.hooks.add(name, URL, on=on, project=project, **fields)


def test_the_signature_is_that_of_standard_webhooks():
    # The example of the specification's own libraries.
    made = sign_message(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
        b'{"test": 2432232314}',
    )
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_that_is_none_is_refused():
    with pytest.raises(InputError, match="whsec_"):
        sign_message("whsec_?", "id", "1", b"")
    assert len(base64.b64decode(new_secret().removeprefix("whsec_"))) == 32


def test_a_message_tells_the_job_and_no_command_variable_or_words_of_an_agent():
    spec = {"command": ["python", "secret.py"], "env": {"PASSWORD": "s3cret"}}
    row_of_job = job(1, "a", name="train", owner="anna", project="vision", spec=spec)
    row = failed("a", reason="user_error", exit_code=3, message="s3cret", cause={"fact": "x"})
    message = message_of(row, row_of_job, hook_id="whk_1", template=Template.JSON)
    told = json.loads(message.body)
    assert told["type"] == "job_failed"
    assert told["data"]["job"]["owner"] == "anna"
    assert told["data"]["details"] == {"reason": "user_error", "exit_code": 3}
    assert b"s3cret" not in message.body
    assert b"secret.py" not in message.body
    assert "train (a), project vision, owner anna: user_error, exit code 3" in told["data"]["text"]


def test_what_people_name_things_is_no_markup_for_slack():
    row_of_job = job(1, "a", name="<!channel> & *bold*", owner="anna", project="vision")
    body = json.loads(message_of(failed(), row_of_job, hook_id="w", template=Template.SLACK).body)
    assert "&lt;!channel&gt; &amp;" in body["text"]
    assert body["blocks"][0]["text"]["type"] == "plain_text"
    assert "<!channel>" in body["blocks"][0]["text"]["text"]


def test_a_message_is_bounded_whatever_a_line_holds():
    row = failed(reason="x" * 100_000, nodes=["n" * 10_000] * 1000, refused={"k" * 999: 1})
    assert len(message_of(row, None, hook_id="w", template=Template.JSON).body) < 10_000


def test_lines_are_sent_in_order_signed_and_once_where_all_goes_well():
    async def go():
        world = World()
        async with leading(world):
            world.happens(failed())  # before the webhook was made
            view, secret = await add(world)
            assert view.webhook.place == "https://hooks.example.com"
            ids = [world.happens(failed(), line("node_lost", "node", "n")) - 1 for _ in range(5)]
            assert await world.arrived(5) == ids
            sent = world.post.arrived[0]
            signed = f"{sent.headers['webhook-id']}.{sent.headers['webhook-timestamp']}.".encode()
            key = base64.b64decode(secret.removeprefix("whsec_"))
            digest = hmac.new(key, signed + sent.body, hashlib.sha256).digest()
            assert sent.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
            assert len({message.headers["webhook-id"] for message in world.post.arrived}) == 5
            assert {message.url for message in world.post.arrived} == {URL}

    asyncio.run(go())


def test_a_message_that_is_not_taken_is_sent_again_under_the_same_id_before_the_next():
    async def go():
        world = World()
        async with leading(world):
            await add(world)
            world.post.answers = [Posted(status=500, problem="it answered 500")] * 3
            first = world.happens(failed())
            second = world.happens(failed())
            assert await world.arrived(5) == [first] * 4 + [second]
            ids = [message.headers["webhook-id"] for message in world.post.arrived]
            assert len(set(ids[:4])) == 1
            assert ids[4] != ids[0]
            await world.until(lambda: stored_webhooks(world.store)[0].state.cursor >= second)
        (view,) = stored_webhooks(world.store)
        assert (view.state.delivered, view.state.failures, view.state.word) == (2, 0, "ok")

    asyncio.run(go())


def test_the_next_leader_goes_on_where_the_last_one_stopped():
    async def go():
        first = World()
        async with leading(first):
            await add(first)
            done = first.happens(failed())
            assert await first.arrived(1) == [done]
        left = [first.happens(failed()) for _ in range(3)]
        second = World(store=first.store)
        async with leading(second):
            assert await second.arrived(3) == left

    asyncio.run(go())


def test_a_webhook_that_fails_for_long_is_told_and_paused_and_holds_up_no_other():
    async def go():
        rules = WebhookRules(
            first_pause_s=0.01, longest_pause_s=0.01, pause_after_s=0.2, look_s=0.01
        )
        world = World(rules=rules)
        async with leading(world):
            await add(world, "bad")
            world.post.answers = [Posted(problem="no answer within 10 s")] * 100_000
            lost = world.happens(failed())
            await world.until(lambda: stored_webhooks(world.store)[0].state.word == "paused")
            kinds = [note[0] for note in world.notes]
            assert kinds[0] == "webhook_created"
            assert "webhook_failing" in kinds
            assert kinds[-1] == "webhook_paused"
            assert stored_webhooks(world.store)[0].state.problem == "no answer within 10 s"
            world.post.answers, world.post.arrived = [], []
            await add(world, "good")
            later = world.happens(failed())
            assert await world.arrived(1) == [later]
            await world.hooks.resume("bad", actor="olga")
            assert await world.arrived(3) == [later, lost, later]

    asyncio.run(go())


def test_a_receiver_that_is_gone_pauses_its_webhook_at_once_and_skip_passes_over():
    async def go():
        world = World()
        async with leading(world):
            await add(world)
            world.post.answers = [Posted(status=410, problem="it answered 410")]
            world.happens(failed())
            await world.until(lambda: stored_webhooks(world.store)[0].state.word == "paused")
            world.happens(failed())
            await world.hooks.resume("chat", actor="olga", skip=True)
            later = world.happens(failed())
            assert (await world.arrived(2))[1:] == [later]

    asyncio.run(go())


def test_a_project_s_webhook_hears_of_its_jobs_and_itself_alone():
    async def go():
        world = World()
        jobs = (job(1, "a", project="vision"), job(2, "b", project="speech"))
        world.store.commit(entry(1, jobs=jobs), token=world.token)
        async with leading(world):
            await add(world, project="vision", on=("job_failed", "project_changed", "node_lost"))
            world.happens(failed("b"), line("node_lost", "node"))
            other = line("project_changed", "project", "speech")
            world.happens(other)
            own = line("project_changed", "project", "vision")
            expected = [world.happens(own), world.happens(failed("a"))]
            assert await world.arrived(2) == expected

    asyncio.run(go())


def test_one_that_fails_is_not_told_of_its_own_failing():
    async def go():
        world = World()
        async with leading(world):
            await add(world, on=("webhook_failing",))
            own = line("webhook_failing", "webhook", "chat")
            other = line("webhook_failing", "webhook", "mail")
            world.happens(own)
            told = world.happens(other)
            assert await world.arrived(1) == [told]

    asyncio.run(go())


def test_names_rooms_keys_and_unknown_ones_are_refused_with_a_reason():
    async def go():
        world = World()
        async with leading(world):
            await add(world)
            with pytest.raises(ConflictError, match="'chat' for all projects already"):
                await add(world)
            with pytest.raises(NotFoundError, match="'nobody'"):
                await world.hooks.delete("nobody", actor="olga")
            for number in range(9):
                await add(world, f"more-{number}", counted=True)
            with pytest.raises(AdmissionError, match="10 webhooks"):
                await add(world, "one-more", counted=True)
            await world.hooks.delete("chat", actor="olga")
            assert "chat" not in {view.webhook.name for view in stored_webhooks(world.store)}
            assert world.store.settings("webhook_state/chat") == ()
        bare = World(box=SecretBox())
        async with leading(bare):
            with pytest.raises(AdmissionError, match="no key to encrypt"):
                await add(bare)

    asyncio.run(go())


def test_a_name_is_unique_in_its_project():
    async def go():
        world = World()
        async with leading(world):
            for project in (None, "vision", "speech"):
                await add(world, project=project)
                with pytest.raises(ConflictError, match=r"'chat' .*already"):
                    await add(world, project=project)
            assert {view.webhook.key for view in await world.hooks.all()} == {
                "chat",
                "vision/chat",
                "speech/chat",
            }
            await world.hooks.delete("vision/chat", actor="olga")
            assert [view.webhook.project for view in stored_webhooks(world.store)] == [
                None,
                "speech",
            ]

    asyncio.run(go())


def test_a_webhook_of_the_release_before_stays_under_its_name_alone():
    async def go():
        world = World()
        async with leading(world):
            await add(world, project="vision")
        (row,) = world.store.settings("webhook/")
        box = SecretBox(lambda: (KEY,))
        sealed = box.seal(box.opened(row.value["sealed"], row.key), "webhook/chat")
        before = replace(row, key="webhook/chat", value=row.value | {"sealed": sealed})
        world.store.write_settings((before, replace(row, value=None)), token=None)
        again = World(store=world.store)
        async with leading(again):
            assert not (await again.hooks.test("chat", actor="olga")).problem
            with pytest.raises(ConflictError, match="'chat' of project 'vision' already"):
                await add(again, project="vision")
            await add(again, project="speech")
            await again.hooks.delete("chat", actor="olga")
        assert [row.key for row in world.store.settings("webhook/")] == ["webhook/speech/chat"]

    asyncio.run(go())


def test_addresses_and_secrets_are_stored_sealed_and_sealed_anew_with_a_new_key():
    async def go():
        world = World()
        async with leading(world):
            _, secret = await add(world)
        kept = json.dumps([row.value for row in world.store.settings()])
        assert "secret-path" not in kept
        assert secret not in kept
        new = b"n" * 32
        done = reseal_secrets(world.store, SecretBox(lambda: (new, KEY)))
        assert (done.webhooks, done.lost) == (1, "")
        again = World(store=world.store, box=SecretBox(lambda: (new,)))
        async with leading(again):
            assert not (await again.hooks.test("chat", actor="olga")).problem
        assert again.post.arrived[0].url == URL

    asyncio.run(go())
