"""The command of a job's container: as it is, or once for each worker. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.kubernetes.templates.options import Launch
    from scheduler.protocol.desired import DesiredLease

#: Starts ``$@`` once per local rank and ends with the code of the first that failed, else 75 if one
#: left early, else 0. SIGTERM goes to all; a failed rank ends the others. Needs only POSIX sh. A
#: shell that has just forked still has its parent's handlers, and forgets signals they caught. So
#: no rank gets SIGTERM before a file shows that it can handle it. ``wait`` also returns when a
#: signal was handled, hence the loop around it.
LAUNCHER: Final = """\
base=/dev/shm/leasehold.$$ pids= first=$RANK told=
hears() {
  t=0
  while [ ! -e "$1" ] && [ "$t" -lt 250 ] && kill -0 "$2" 2>/dev/null; do
    sleep 0.02; t=$((t + 1))
  done
}
stop() {
  told=1 n=0
  for p in $pids; do hears "$base.up.$n" "$p"; kill -TERM "$p" 2>/dev/null; n=$((n + 1)); done
}
await() {
  while :; do
    wait "$1"; code=$?
    [ "$code" -gt 128 ] && kill -0 "$1" 2>/dev/null || break
  done
}
each() {
  trap - USR1
  (trap - TERM INT; true >"$base.run.$LOCAL_RANK"; exec "$@") & child=$!
  trap 'kill -TERM "$child" 2>/dev/null' TERM INT
  hears "$base.run.$LOCAL_RANK" "$child"
  true >"$base.up.$LOCAL_RANK"
  await "$child"
  case $code in
    0|75) ;;
    *) [ -e "$base.failed" ] || echo "$code" >"$base.failed"; kill -USR1 $$ ;;
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
[ -s "$base.failed" ] && early=$(cat "$base.failed")
rm -f "$base".*
exit "$early"
"""


def launch_command(lease: DesiredLease, launch: Launch) -> list[str]:
    """Return the command of the job's container.

    Args:
        lease: the lease.
        launch: see ``PodOptions``.
    """
    words = [kubelet_literal(word) for word in lease.command]
    if launch == "per-node" or len(lease.local_ranks) == 1:
        return words
    return ["/bin/sh", "-c", kubelet_literal(LAUNCHER), "leasehold", *words]


def kubelet_literal(word: str) -> str:
    """Return a word that the kubelet turns back into this one.

    It replaces ``$(NAME)`` by a variable and ``$$`` by ``$``, and leaves other dollars alone.
    """
    return word.replace("$", "$$") if "$(" in word or "$$" in word else word
