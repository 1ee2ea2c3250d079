"""What a job's container executes: the command as it is, or once for each worker. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.desired import DesiredLease
    from agent.pod_options import Launch

#: Starts ``$@`` once per local rank and ends with the code of the first that failed, else 75 if one
#: left early, else 0. SIGTERM goes to all; who fails takes the others along. Needs only POSIX sh.
#: In ``each`` and at the end ``wait`` also returns when a signal was handled, hence the loops.
LAUNCHER: Final = """\
failed=/dev/shm/leasehold-failed.$$ pids= first=$RANK told=
stop() { told=1; for p in $pids; do kill -TERM "$p" 2>/dev/null; done; }
await() {
  while :; do
    wait "$1"; code=$?
    [ "$code" -gt 128 ] && kill -0 "$1" 2>/dev/null || break
  done
}
each() {
  child= told=
  trap 'told=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
  trap - USR1
  "$@" & child=$!
  [ -z "$told" ] || kill -TERM "$child" 2>/dev/null
  await "$child"
  case $code in
    0|75) ;;
    *) [ -e "$failed" ] || echo "$code" >"$failed"; kill -USR1 $$ ;;
  esac
  exit "$code"
}
trap stop TERM INT USR1
i=0
while [ "$i" -lt "$LOCAL_WORLD_SIZE" ]; do
  RANK=$((first + i)) LOCAL_RANK=$i
  export RANK LOCAL_RANK
  (each "$@") & pids="$pids $!"
  i=$((i + 1))
done
[ -z "$told" ] || stop
early=0
for p in $pids; do await "$p"; [ "$code" -eq 0 ] || early=75; done
[ -s "$failed" ] && early=$(cat "$failed")
exit "$early"
"""


def launch_command(lease: DesiredLease, launch: Launch) -> list[str]:
    """Return the command of the job's container.

    Args:
        lease: the lease.
        launch: see ``PodOptions``.
    """
    words = [literal(word) for word in lease.command]
    if launch == "per-node" or len(lease.local_ranks) == 1:
        return words
    return ["/bin/sh", "-c", literal(LAUNCHER), "leasehold", *words]


def literal(word: str) -> str:
    """Return a word that the kubelet turns back into this one.

    It replaces ``$(NAME)`` by a variable and ``$$`` by ``$``, and leaves other dollars alone.
    """
    return word.replace("$", "$$") if "$(" in word or "$$" in word else word
