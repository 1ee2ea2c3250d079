"""Policies: the list, and the one in force."""

import inspect
import warnings
from typing import Annotated, Any

from fastapi import APIRouter, Path

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.problems import not_found
from api.routing import StrictRoute
from api.schemas.admin import PolicyIn
from api.schemas.answers import PoliciesOut, PolicyDetails, PolicyOut, PolicyTrialOut
from api.schemas.fields import Name
from api.threads import in_thread
from policies.base import Policy
from policies.parameters import describe
from policies.registry import policy_origin, usable_policies

router = APIRouter(prefix="/v1", tags=["policies"], route_class=StrictRoute)


@router.get(
    "/policies",
    summary="List policies",
    operation_id="list_policies",
    responses={200: {"model": PoliciesOut}},
)
async def list_policies(principal: Viewer) -> Answer:  # noqa: ARG001 - asks for a role
    """Return every policy, built-in or from a plugin, with its parameters."""
    return Answer({"policies": await known_policies()})


@router.get(
    "/policies/{name}",
    summary="Show a policy",
    operation_id="get_policy_details",
    responses={200: {"model": PolicyDetails}},
)
async def get_policy_details(
    name: Annotated[Name, Path(description="policy")],
    principal: Viewer,  # noqa: ARG001 - asks for a role
) -> Answer:
    """Return a policy's program, source and parameters."""
    return Answer(await details_of(name))


@router.get(
    "/policy",
    summary="Show the policy in force",
    operation_id="get_policy",
    responses={200: {"model": PolicyOut}},
)
async def get_policy(context: Ctx, principal: Viewer) -> Answer:  # noqa: ARG001 - asks for a role
    """Return the policy in force, the user that set it, and the result of its last solve."""
    return Answer(context.service.policy())


@router.put(
    "/policy",
    summary="Put a policy in force",
    operation_id="set_policy",
    responses={200: {"model": PolicyOut}},
)
async def set_policy(given: PolicyIn, context: Ctx, principal: Operator) -> Answer:
    """Put a policy in force from the next question on, without a restart."""
    return Answer(await context.service.set_policy(given.choice(), actor=principal.subject))


@router.post(
    "/policy:try",
    summary="Try a policy",
    operation_id="try_policy",
    responses={200: {"model": PolicyTrialOut}},
)
async def try_policy(given: PolicyIn, context: Ctx, principal: Operator) -> Answer:  # noqa: ARG001 - asks for a role
    """Return which jobs would hold other workers in the next round; change nothing.

    Both rounds are replayed from the present state, so that they differ by the policy alone.
    """
    return Answer(await context.service.try_policy(given.choice()))


async def known_policies() -> list[dict[str, Any]]:
    """Return every policy, by name."""
    found = await in_thread(_usable)
    return [_summary(name, found[name]) for name in found]


async def details_of(name: str) -> dict[str, Any]:
    """Return a policy with its program.

    Raises:
        ProblemError: there is none of that name.
    """
    found = await in_thread(_usable)
    if name not in found:
        raise not_found("policy", name)
    return _summary(name, found[name]) | {"description": _text(found[name])}


def _usable() -> dict[str, type[Policy]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the daemon has reported broken plugins at its start
        return usable_policies()


def _summary(name: str, policy: type[Policy]) -> dict[str, Any]:
    return {
        "name": name,
        "summary": _text(policy).partition("\n")[0],
        "time_dependent": policy.time_dependent,
        "origin": policy_origin(name),
        "parameters": describe(policy),
    }


def _text(policy: type[Policy]) -> str:
    return inspect.getdoc(policy) or "It has no description."
