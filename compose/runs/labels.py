"""Labels of the containers, processes and folders of a run.

`ensayo clean` finds leftovers by these labels.
"""

from services.plan import Plan

RUN_LABEL, ROLE_LABEL, NODE_LABEL, TRIAL_LABEL = "ensayo.run", "ensayo.role", "ensayo.node", "ensayo.trial"
RUN_ENV_VARIABLE = "ENSAYO_RUN"  # environment variable of node processes, with the name of the run
SECRETS_PREFIX = "ensayo-secrets-"  # of temporary folders with keys


def container_labels(plan: Plan, role: str, node_name: str) -> dict[str, str]:
    """Return the labels of a container: run, trial, role and node."""
    return {RUN_LABEL: plan.run, TRIAL_LABEL: plan.trial, ROLE_LABEL: role, NODE_LABEL: node_name}
