"""What everything of a run carries, so that leftovers can be found: labels, an environment variable, a name."""

from services.plan import Plan

RUN_LABEL, ROLE_LABEL, NODE_LABEL, TRIAL_LABEL = "ensayo.run", "ensayo.role", "ensayo.node", "ensayo.trial"
RUN_VARIABLE = "ENSAYO_RUN"  # of processes
SECRETS_PREFIX = "ensayo-secrets-"  # of temporary folders


def labels(plan: Plan, role: str, node: str) -> dict[str, str]:
    """The labels of a container."""
    return {RUN_LABEL: plan.run, TRIAL_LABEL: plan.trial, ROLE_LABEL: role, NODE_LABEL: node}


def secrets_prefix(plan: Plan) -> str:
    """How the name of the folder with the keys of a trial begins."""
    return f"{SECRETS_PREFIX}{plan.run}-"
