"""Commands that run in an image of the user."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import docker
import pytest
from command_plans import plan_command

from compose.commands import images
from compose.commands.dry_run import measure_step_profile_on_host
from compose.commands.image_programs import KILLED_EXIT_CODE, run_in_container
from compose.commands.images import describe_image
from compose.commands.limits import check_commands
from compose.commands.packages import explain_missing_packages
from compose.engines.containers.compose_file import DockerHostProperties, render_compose_document
from compose.engines.containers.node_image.build import _choose_base_image, build_command_image
from compose.host.host_facts import container_user
from compose.scenario_files.load import load_scenario
from services.commands import launch
from services.plan import CommandPlan
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.commands.environment_facts import CommandImage, CommandInterpreter
from services.schema.errors import UserError

RunTrial: TypeAlias = Callable[..., Any]

IMAGE_ID = "sha256:123"
FACTS = {
    "path": "/opt/conda/bin/python3",
    "version": "3.11.4",
    "libc": "glibc",
    "packages": ["/opt/conda/lib/python3.11/site-packages"],
    "has_venv": True,
    "search_path": "/opt/conda/bin:/usr/bin",
    "python_path": "/extra",
}


class FakeEngine:
    """Docker engine with one image, whose Python states some facts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facts: dict[str, Any] = dict(FACTS)
        self.inspected = subprocess.CompletedProcess([], 0, f"{IMAGE_ID}\n", "")
        self.imports: dict[str, Any] = {"missing": [], "failed": {}}
        self.failure: subprocess.CompletedProcess[str] | None = None
        images._describe_image_id.cache_clear()
        monkeypatch.setattr(images, "run_host_program", lambda _: self.inspected)
        monkeypatch.setattr(images, "run_in_container", self.run)
        monkeypatch.setattr(images, "build_command_image", lambda *_: "ensayo-command:1")

    def run(self, image: str, words: Sequence[str], timeout_s: float, **_: Any) -> subprocess.CompletedProcess[str]:
        """Return what the queries print, after a line that a module prints."""
        if self.failure:
            return self.failure
        printed = self.facts if image == IMAGE_ID else self.imports
        return subprocess.CompletedProcess(list(words), 0, f"a module prints\n{json.dumps(printed)}\n", "")


@pytest.fixture
def engine_stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    yield FakeEngine(monkeypatch)
    images._describe_image_id.cache_clear()


def test_facts_of_an_image_are_those_of_its_own_python(engine_stub: FakeEngine) -> None:
    """The command runs with it, and the plan states it."""
    engine_stub.imports["missing"] = ["torch"]

    interpreter, facts = describe_image("my/training:1", ("torch",))

    assert facts == CommandImage(id=IMAGE_ID, search_path="/opt/conda/bin:/usr/bin", python_path="/extra")
    assert (interpreter.path, interpreter.version) == ("/opt/conda/bin/python3", "3.11.4")
    assert interpreter.missing == ("torch",)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"version": "3.12.1"},
            "my/training:1: its python3 is Python 3.12.1; base the image on Debian with Python 3.11",
        ),
        ({"libc": ""}, "its C library is not glibc"),
        ({"has_venv": False}, "has no module venv; install it"),
    ],
)
def test_an_image_that_nodes_cannot_use_is_rejected(
    engine_stub: FakeEngine, facts: dict[str, Any], message: str
) -> None:
    """A build would fail after minutes, with a message about Ensayo's own packages."""
    engine_stub.facts |= facts

    with pytest.raises(UserError, match=message):
        describe_image("my/training:1", ())


def test_an_image_that_the_engine_lacks_is_named(engine_stub: FakeEngine) -> None:
    """Docker itself would try to download it while a trial starts."""
    engine_stub.inspected = subprocess.CompletedProcess([], 1, "", "Error: No such image: my/training:1\n")

    with pytest.raises(UserError, match=r"has no such image; build it, or run: docker pull my/training:1"):
        describe_image("my/training:1", ())


def test_an_engine_that_does_not_answer_is_another_error(engine_stub: FakeEngine) -> None:
    """A host without Docker can't say whether the image exists."""
    engine_stub.inspected = subprocess.CompletedProcess([], 1, "", "Cannot connect to the Docker daemon\n")

    with pytest.raises(UserError, match=r"docker ends with: Cannot connect to the Docker daemon; start Docker"):
        describe_image("my/training:1", ())


def test_an_image_without_python_is_rejected(engine_stub: FakeEngine) -> None:
    engine_stub.failure = subprocess.CompletedProcess([], 127, "", "timeout: failed to run command 'python3'\n")

    with pytest.raises(UserError, match=r"python3 can't be run in this image: timeout: failed .*needs Python 3\.11"):
        describe_image("my/training:1", ())


def test_a_module_whose_import_fails_is_an_error(engine_stub: FakeEngine) -> None:
    """It is installed, so to leave out the trial would hide a broken image."""
    engine_stub.imports["failed"] = {"torch": "OSError: libgomp.so.1 is missing"}

    with pytest.raises(UserError, match=r"import torch fails in this image: OSError: libgomp\.so\.1 is missing"):
        describe_image("my/training:1", ("torch",))


def plan_in_image(strategy: dict[str, Any] | None = None, missing: tuple[str, ...] = ()) -> CommandPlan:
    """Return the plan of a command in an image."""
    packages = tuple(FACTS["packages"])
    interpreter = CommandInterpreter(path=FACTS["path"], version="3.11.4", packages=packages, missing=missing)
    facts = CommandImage(id=IMAGE_ID, search_path=FACTS["search_path"], python_path="/extra")
    return plan_command(
        strategy=strategy, image="my/training:1", interpreter=interpreter.model_dump(), image_facts=facts.model_dump()
    )


def test_only_workers_run_in_the_image_and_packages_of_the_host_are_not_mounted() -> None:
    """The folders of its packages exist in the image, and may exist on the host with other content."""
    plan = plan_in_image()
    host = DockerHostProperties(
        {"cpu": "ensayo-node:1", IMAGE_ID: "ensayo-command:1"},
        Path("/secrets"),
        "10001:10001",
        has_gpu=False,
        supports_start_interval=True,
    )

    services = render_compose_document(plan, host)["services"]

    assert {name: service["image"] for name, service in services.items()} == {
        "coordinator": "ensayo-node:1",
        "worker-0": "ensayo-command:1",
        "worker-1": "ensayo-command:1",
    }
    targets = [mount["target"] for mount in services["worker-0"]["volumes"]]
    assert not set(FACTS["packages"]) & set(targets)
    assert plan.host_python is None


def test_the_command_has_interpreter_and_paths_of_the_image() -> None:
    """Ensayo's own process has other ones, from /opt/ensayo."""
    plan = plan_in_image()

    environment = launch.command_environment(plan, plan.node_plan("worker-0"), Path("meter.json"))

    assert launch.command_words(plan)[0] == "/opt/conda/bin/python3"
    assert environment["PATH"] == "/opt/conda/bin:/opt/conda/bin:/usr/bin"
    assert environment["PYTHONPATH"] == f"{launch.SCRIPT_PROCESS_FOLDER}:/extra"


def test_collectives_of_ensayo_are_imported_after_the_packages_of_the_image() -> None:
    """Otherwise the script would compute with Ensayo's NumPy."""
    plan = plan_in_image({"process_group": "ensayo"})

    environment = launch.command_environment(plan, plan.node_plan("worker-0"), Path("meter.json"))

    folders = environment["PYTHONPATH"].split(":")
    assert folders[:3] == [str(launch.SCRIPT_PROCESS_FOLDER), "/extra", FACTS["packages"][0]]
    assert len(folders) == 4


def test_engines_without_containers_reject_an_image() -> None:
    """The option --engine of the command line is known after the scenario was loaded."""
    plan = plan_in_image().model_copy(update={"engine": "local"})

    with pytest.raises(
        UserError, match=r"workload\.image needs containers, but the engine is local; use --engine docker"
    ):
        check_commands([plan])
    check_commands([plan_in_image()])


def test_a_module_that_the_image_lacks_is_installed_there() -> None:
    assert explain_missing_packages(plan_in_image(missing=("torch",))) == (
        "torch is not installed in the image my/training:1; install the packages that contain torch there"
    )


DOCKERFILE = """
FROM {base}
RUN python3 -c "import pathlib, sysconfig; \
folder = pathlib.Path(sysconfig.get_path('purelib')); \
folder.mkdir(parents=True, exist_ok=True); \
(folder / 'image_package.py').write_text('ACCURACY = 0.25'); \
pathlib.Path('/extra').mkdir(); \
pathlib.Path('/extra/named_package.py').write_text('')"
ENV PYTHONPATH=/extra
USER 1234
ENTRYPOINT ["false"]
"""
SCENARIO = """
name: mine
workload:
  kind: command
  command: python script.py
  image: {image}
  requires: [image_package, {required}]
  metrics: {{accuracy: "accuracy=([0-9.]+)"}}
cluster: {{workers: 2, worker: {{memory: 512MiB, uplink: 400mbit, downlink: 400mbit}}}}
strategies: {{script: {{kind: command}}}}
baseline: false
"""
SCRIPT = """
import importlib.util, os, sys
import image_package, named_package
if os.environ.get("ENSAYO_FAIL"):
    raise RuntimeError(f"{sys.executable} {os.getcwd()} {os.getuid()}")
print("interpreter", sys.executable, "services", importlib.util.find_spec("services"))
print(f"accuracy={image_package.ACCURACY}")
"""


@pytest.fixture(scope="module")
def user_image(docker_engine: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the tag of an image with packages of its own, another user and an entry point; remove it at the end."""
    folder, tag = tmp_path_factory.mktemp("image"), f"ensayo-test-image:{uuid4().hex[:12]}"
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=_choose_base_image(print)[0]))
    with closing(docker.from_env()) as client:
        client.images.build(path=str(folder), tag=tag)
        node_image = build_command_image(str(client.images.get(tag).id), print)
        yield tag
        for name in (node_image, node_image.replace("ensayo-command:", "ensayo-command-base:"), tag):
            client.images.remove(name, force=True)


def write_scenario(folder: Path, image: str, required: str = "named_package") -> Path:
    (folder / "script.py").write_text(SCRIPT)
    folder.chmod(0o755)
    path = folder / "mine.yaml"
    path.write_text(SCENARIO.format(image=image, required=required))
    return path


@pytest.mark.docker
def test_a_command_runs_with_the_python_of_its_image(run_trial: RunTrial, tmp_path: Path, user_image: str) -> None:
    """The agent of Ensayo runs in the same container, and its packages are not those of the command."""
    trial = run_trial("docker", write_scenario(tmp_path, user_image), "script")

    output = (trial.folder / "logs/worker-1.err").read_text()
    values = [event["value"] for event in trial.events("coordinator", "eval_metrics")]
    assert values == [{"accuracy": 0.25}]
    assert f"interpreter {trial.plan.workload.interpreter.path} services None\n" in output
    assert not trial.plan.workload.interpreter.path.startswith("/opt/ensayo")


@pytest.mark.docker
def test_the_dry_run_runs_in_the_image(tmp_path: Path, user_image: str) -> None:
    """The host need not have the packages of the image."""
    path = write_scenario(tmp_path, user_image)
    workload = load_scenario(path).workload
    assert isinstance(workload, CommandWorkload)
    failing = workload.model_copy(update={"requires": (), "environment": {"ENSAYO_FAIL": "1"}})

    outcome = measure_step_profile_on_host(failing, 2, 0)

    assert workload.interpreter
    assert outcome.step_profile is None
    uid = container_user().partition(":")[0]
    assert f"RuntimeError: {workload.interpreter.path} /run/ensayo-dry-run/files {uid}" in outcome.reason


@pytest.mark.docker
def test_a_module_that_the_image_lacks_is_found_before_anything_starts(tmp_path: Path, user_image: str) -> None:
    workload = load_scenario(write_scenario(tmp_path, user_image, "no_such_package")).workload

    assert isinstance(workload, CommandWorkload)
    assert workload.missing_modules == ("no_such_package",)


@pytest.mark.docker
def test_a_program_in_an_image_ends_at_its_time_limit(user_image: str) -> None:
    """Nothing else ends a script that waits; a program that was killed earlier is another error."""
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_container(user_image, ["sleep", "60"], 1.0)

    assert run_in_container(user_image, ["sh", "-c", "kill -9 $$"], 60.0).returncode == KILLED_EXIT_CODE
