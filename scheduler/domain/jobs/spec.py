"""What a user submits: a job with everything that a launch needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.fields import (
    RETRIES,
    SECONDS,
    SHORT_SECONDS,
    SOME_SECONDS,
    Number,
    Option,
    Word,
    Written,
    asked,
    asked_of,
)
from scheduler.domain.jobs.job import LARGEST_GANG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.fields import Asked

#: Characters of a job type.
LONGEST_TYPE: Final = 200
#: The project of jobs that name none.
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as submitted, every value checked by its reader.

    People give the fields declared by ``asked``. The REST interface, job files, the options of
    ``leasehold submit``, the stored rows and the reference pages follow from them. A new field
    needs only the code that uses it; `make written` then writes the client's types and the pages.

    Sequences are tuples here, mappings read-only, and a text that is not given is empty.
    """

    name: str = asked(
        Word.NAME,
        "its name",
        option=Option(
            help="Its name; the program's by default.",
            short="-n",
            page="its name",
            default="the program's name",
        ),
    )
    project: str = asked(
        Word.PROJECT,
        "its project, for quotas; 'default', or the token's project",
        default=DEFAULT_PROJECT,
        by_caller=True,
        option=Option(
            help="Its project.",
            short="-p",
            page="its project, for quotas",
            default="`default`, or the token's only one",
        ),
    )
    command: tuple[str, ...] = asked(
        Word.COMMAND, "program and arguments, as a list; no shell sees it"
    )
    env: Mapping[str, str] = asked(
        Word.VARIABLES,
        "environment variables",
        default={},
        option=Option(
            help="Variable, or one of yours. Repeatable.",
            short="-e",
            metavar="K[=V]",
            page="variable; `--env K` takes yours along; repeatable",
        ),
    )
    #: As given in a submission; sealed by ``scheduler.secret_box`` from then on.
    secret_env: Mapping[str, str] = asked(
        Word.SECRETS,
        "environment variables that are kept encrypted and never shown",
        default={},
        page="; see [Keep secrets](../how-to/keep-secrets.md)",
        option=Option(
            help="A variable of yours that is kept encrypted. Repeatable.",
            metavar="K",
            page="variable of your environment that is kept encrypted; repeatable",
        ),
    )
    working_dir: str = asked(
        Word.PATH,
        "absolute path on the node",
        default="",
        option=Option(
            help="Its working directory.",
            short="-C",
            metavar="DIR",
            page="its working directory; relative to here",
            default="a folder of its own",
        ),
    )
    #: Hash of the tree, which belongs to the project; see ``scheduler.archive`` for its bounds.
    upload: str = asked(
        Word.DIGEST,
        "hash of uploaded code that it is started in, instead of a working_dir",
        default="",
        page="; see [Upload code](../how-to/upload-code.md)",
    )
    #: Empty if it runs as a local process.
    image: str = asked(
        Word.IMAGE, "container image", default="", option=Option(help="Container image.")
    )
    #: Ascending; the first one counts as its scale factor.
    scale_factors: tuple[int, ...] = asked(
        Word.WORKER_COUNTS,
        "workers at once, or a list of counts",
        default=(1,),
        name="scale_factor",
        option=Option(
            help="Worker counts that it can run at.",
            flag="--workers",
            short="-w",
            metavar="N[,M...]",
            default="1",
        ),
    )
    min_workers: int | None = asked(
        Number(whole=True, ge=1, le=LARGEST_GANG),
        "fewest workers that it can run on, in place of scale_factor; 1 if max_workers is given",
        default=None,
        option=Option(
            help="Fewest workers that it can run on.",
            metavar="N",
            page="fewest workers that it can run on, in place of `--workers`",
            default="1, with `--max-workers`",
        ),
    )
    max_workers: int | None = asked(
        Number(whole=True, ge=1, le=LARGEST_GANG),
        "most workers that it can run on",
        default=None,
        page=": it may get `min_workers`, twice as many, and so on, and `max_workers` itself",
        option=Option(
            help="Most workers that it can run on.",
            metavar="N",
            page="most workers; it may get the fewest, twice as many and so on, and the most",
        ),
    )
    worker_types: tuple[str, ...] = asked(
        Word.WORKER_TYPES,
        "types that it may run on; none for any",
        default=(),
        option=Option(
            help="Worker types that it may run on.",
            flag="--type",
            short="-t",
            metavar="A[,B...]",
            page="worker types that it may run on; repeatable",
            default="any",
        ),
    )
    total_steps: float | None = asked(
        Number(gt=0, le=1e15),
        "steps until it is complete",
        default=None,
        option=Option(help="Steps until it is complete.", flag="--steps"),
    )
    duration_s: float | None = asked(
        SOME_SECONDS,
        "estimate of its run time in seconds, if it counts no steps; it may run longer",
        default=None,
        option=Option(
            help="Estimate of its run time.",
            metavar="SPAN",
            page="estimate of its run time, if it counts no steps",
            default="policies take it for 1 h, forecasts for unknown",
        ),
    )
    #: Empty: ``project/name``.
    job_type: str = asked(
        Word.JOB_TYPE,
        "key into the throughput table",
        default="",
        option=Option(help="Key into the throughput table.", default="project/name"),
    )
    throughputs: Mapping[str, float] = asked(
        Word.RATES,
        "worker type -> steps/s at its scale factor, if known",
        default={},
        option=Option(
            help="Steps/s on a worker type. Repeatable.",
            flag="--throughput",
            metavar="TYPE=X",
            page="steps/s on a worker type, if known; repeatable",
            default="learned",
        ),
    )
    #: JSON as ``planner.plans.document.write_model`` writes it; empty: its model is not known.
    model: str = asked(
        Word.MODEL,
        "its model, from which the service finds plans and steps/s, instead of throughputs",
        default="",
        page=": `config` (a Hugging Face `config.json`) or `layers`, and `batch`, `sequence` and "
        "`precision`; it needs `total_steps`, see "
        "[Let the service plan](../how-to/plan-a-model.md#let-the-service-plan)",
        option=Option(
            help="Its model, for planning: a file of YAML or JSON.",
            metavar="FILE",
            page="its model, from which the service finds plans and steps/s; see "
            "[Let the service plan](../how-to/plan-a-model.md#let-the-service-plan)",
        ),
    )
    weight: float = asked(
        Number(ge=1e-6, le=1e6),
        "importance: 2 is due twice the share",
        default=1.0,
        option=Option(help="Its importance.", page="2 is due twice the share", default="1"),
    )
    deadline_s: float | None = asked(
        Word.MOMENT,
        "due time, seconds since the Unix epoch",
        default=None,
        option=Option(
            help="By when: 2h from now, or an ISO 8601 time.",
            metavar="WHEN",
            page="by when it should be complete",
        ),
    )
    max_run_time_s: float | None = asked(
        SOME_SECONDS,
        "seconds for which it may hold workers in all",
        default=None,
        option=Option(help="How long it may hold workers in all.", metavar="SPAN"),
    )
    preemptible: bool = asked(
        Word.FLAG,
        "whether others may have its workers before it is done",
        default=True,
        option=Option(
            help="Runs to its end once it has begun.",
            page="runs to its end once it has begun; it may wait longer for its start",
        ),
    )
    min_run_time_s: float = asked(
        SECONDS,
        "seconds for which a lease is not taken back for another job",
        default=0.0,
        page="; at most `engine.patience_s`",
        option=Option(
            help="How long it runs at least before others have its workers.",
            metavar="SPAN",
            default="0",
        ),
    )
    max_failures: int = asked(
        RETRIES,
        "failures of its own that are retried",
        default=3,
        option=Option(help="Failures of its own that are retried.", flag="--retries", default="3"),
    )
    retry_oom: bool = asked(
        Word.FLAG,
        "whether running out of memory is retried",
        default=True,
        option=Option(help="Running out of memory is final."),
    )
    max_out_of_memory: int | None = asked(
        RETRIES,
        "times that running out of memory is retried; null: they count as failures alone",
        default=None,
        option=Option(
            help="Retries after running out of memory, as far as those of failures allow.",
            flag="--oom-retries",
        ),
    )
    max_node_faults: int | None = asked(
        RETRIES,
        "times that it is retried after its node failed; null for any number",
        default=None,
        option=Option(
            help="Retries after faults of nodes.", flag="--node-fault-retries", default="any number"
        ),
    )
    max_image_failures: int | None = asked(
        RETRIES,
        "times that it is retried after its image could not be pulled; null for any number",
        default=None,
        option=Option(
            help="Retries after its image could not be pulled.",
            flag="--image-retries",
            default="any number",
        ),
    )
    max_preemptions: int | None = asked(
        RETRIES,
        "times that it may be preempted; null for any number",
        default=None,
        option=Option(
            help="How often it may be preempted.",
            flag="--max-preemptions",
            default="any number",
        ),
    )
    checkpoint_dir: str | None = asked(
        Word.PATH,
        "folder of its state",
        default=None,
        option=Option(
            help="Folder of its state.",
            metavar="DIR",
            page="folder of its state; relative to here; `{job_id}`, `{name}` "
            "and `{index}` are filled in, as in the command and the "
            "variables",
        ),
    )
    labels: Mapping[str, str] = asked(
        Word.LABELS,
        "free key-value pairs",
        default={},
        option=Option(
            help="Label. Repeatable.",
            flag="--label",
            short="-l",
            metavar="K=V",
            page="label; repeatable",
        ),
    )
    #: Empty: the project.
    entity: str = asked(
        Word.SUBJECT,
        "entity that its share is accounted to",
        default="",
        option=Option(help="Entity that its share is accounted to.", default="the project"),
    )
    depends_on: tuple[str, ...] = asked(
        Word.JOB_IDS,
        "ids of jobs that have to complete first",
        default=(),
        option=Option(
            help="Runs when that job, or array, has completed. Repeatable.",
            flag="--after",
            metavar="JOB",
            page="runs when that job, or all of that array, has completed; repeatable",
        ),
    )
    #: Its position in its array, or None; the scheduler sets it.
    array_index: int | None = None
    notice_s: float | None = asked(
        SHORT_SECONDS,
        "seconds of notice before SIGTERM; the operator's if left out",
        default=None,
        usual="`leases.notice_s`",
        option=Option(help="From the notice to SIGTERM.", metavar="SPAN", default="5 s"),
    )
    grace_s: float | None = asked(
        SHORT_SECONDS,
        "seconds from SIGTERM to SIGKILL; the operator's if left out",
        default=None,
        page="; with the notice at most `engine.patience_s`",
        usual="`leases.grace_s`",
        option=Option(help="From SIGTERM to SIGKILL.", metavar="SPAN", default="5 s"),
    )
    restart_s: float = asked(
        SECONDS,
        "seconds of work that a change of workers costs",
        default=0.0,
        page="; 0: as long as launches of its job type took, once three were timed",
        option=Option(help="Work that a change of workers costs it.", metavar="SPAN", default="0"),
    )
    restarts: Mapping[str, float] = asked(
        Word.RESTARTS,
        "worker type, or type and count (`v100:8`) -> seconds that a change to them costs",
        default={},
        page="; others: `restart_s`",
        option=Option(
            help="Work that a change to some workers costs. Repeatable.",
            flag="--restart-on",
            metavar="TYPE[:N]=S",
            page="work that a change to a worker type, or to N workers of it, costs; repeatable",
            default="`--restart`",
        ),
    )
    progress_regex: str | None = asked(
        Word.EXPRESSION,
        "searched in its output; group 'steps' (or 1) counts its steps",
        default=None,
        option=Option(help="Finds the count of steps in its output.", metavar="RE"),
    )
    progress_file: str | None = asked(
        Word.ANY_PATH,
        "file; its last number counts the checkpointed steps",
        default=None,
        option=Option(help="Its last number is the steps done.", metavar="FILE"),
    )
    memory_bytes: int | None = asked(
        Number(whole=True, ge=2**20, le=2**50, written=Written.SIZE),
        "limit of host memory in bytes",
        default=None,
        option=Option(help="Limit of host memory, as in 8GiB.", metavar="SIZE"),
    )
    cpus: float | None = asked(
        Number(gt=0, le=4096),
        "limit of processor cores",
        default=None,
        option=Option(help="Limit of processor cores."),
    )
    #: Samples by name; see ``planner.learning.goodput``. Empty: its batch does not change.
    batch: Mapping[str, int] = asked(
        Word.BATCH,
        "range in which it may choose its batch, in samples",
        default={},
        page=": `initial`, `most`, `least_per_worker` and `most_per_worker`; it needs "
        "`total_steps`, see [Let the batch change](../how-to/write-a-job.md#let-the-batch-change)",
    )
    space_sharing: bool = asked(
        Word.FLAG,
        "whether it may share workers",
        default=True,
        option=Option(help="Never shares workers with another job."),
    )
    mixed_gangs: bool = asked(
        Word.FLAG,
        "whether it may run on workers of two types at once",
        default=False,
        page="; see [Mixed gangs](../how-to/write-a-job.md#run-on-workers-of-two-types-at-once)",
        option=Option(help="May run on workers of two types at once."),
    )
    #: Plain JSON values; the fields are those of ``agent.kubernetes.templates.options.PodOptions``.
    kubernetes: Mapping[str, Any] = asked(
        Word.PODS,
        "its settings for pods",
        default={},
        page=": `requests`, `volumes`, `tolerations`, `service_account`, `image_pull_secrets`, "
        "`image_pull_policy`, `runtime_class`, `shm_bytes`, `launch`, `force_delete`, `template`",
    )

    @property
    def scale_factor(self) -> int:
        """Workers that it holds in its first configuration."""
        return self.scale_factors[0]

    @property
    def type_key(self) -> str:
        """The job type under which its throughput is known or learned.

        It has the digest of the job's model: jobs with other models share no figures with it.
        """
        if not self.model:
            return self.named_type
        mark = f"@{digest_of_model(self.model)}"
        return f"{self.named_type[: LONGEST_TYPE - len(mark)]}{mark}"

    @property
    def named_type(self) -> str:
        """The job type as people name it."""
        return self.job_type or f"{self.project}/{self.name}"

    @property
    def account(self) -> str:
        """The entity that its share is accounted to."""
        return self.entity or self.project


@lru_cache(maxsize=1024)
def digest_of_model(model: str) -> str:
    """Return 16 characters that differ for different models."""
    return sha256(model.encode()).hexdigest()[:16]


#: What people give of a job, in the order in which they are shown it.
JOB_FIELDS: Final[tuple[Asked, ...]] = asked_of(JobSpec)
