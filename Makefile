# Every target installs its requirements first; `make` alone lists the targets.
#   PYTHON=python3.12 make test      another interpreter for the virtual environment
PYTHON ?= python3
bin    := .venv/bin
ready  := .venv/.ready
audit_bin   := .venv-audit/bin
audit_ready := .venv-audit/.ready
torch_bin   := .venv-torch/bin
torch_ready := .venv-torch/.ready

# Without byte code every process that starts compiles Ensayo again, half a second each.
unexport PYTHONDONTWRITEBYTECODE

# Tests keep temporary files in memory if 4 GB are free there and TMPDIR names no other folder: they write many small files
# and wait until these are stored, which is a third of their time on a disk.
memory_disk := /dev/shm
in_memory   := $(if $(TMPDIR),,$(shell awk '$$2 == "$(memory_disk)" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && \
  [ "$$(df -Pk $(memory_disk) | awk 'NR == 2 {print $$4}')" -gt 4000000 ] && echo TMPDIR=$(memory_disk)))

.DEFAULT_GOAL := help
.PHONY: help scenario list fuzz report export mlperf doctor calibrate images fuzz-inputs test test-all test-docker test-gpu test-torch test-torch-models check audit sbom bench bench-auto bench-checkpoints bench-codecs bench-commands bench-compute bench-convergence bench-diloco-bandwidth bench-endurance bench-faults bench-fidelity bench-overlap bench-protection bench-real-cluster bench-recovery bench-repeats bench-report bench-transport proto clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' Makefile

# NAME is a shipped scenario or the path of a file. The first line of output names the engine and the reason.
scenario: $(ready) ## run a scenario: NAME=quickstart [ENGINE=docker|local|simulated] [ARGS=...]
	$(bin)/ensayo run $(or $(NAME),$(error which scenario? write make scenario NAME=quickstart; make list shows all names)) $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

list: $(ready) ## list the scenarios with their questions
	$(bin)/ensayo list

fuzz: $(ready) ## search for fault schedules that violate an invariant [SEEDS=0-999 STRATEGY=server_asp SCENARIO=...]
	$(bin)/ensayo search-faults $(SCENARIO) --seeds $(or $(SEEDS),0-999) $(if $(STRATEGY),--strategy $(STRATEGY))

report: $(ready) ## write the report of a finished run again: RUN=runs/latest
	$(bin)/ensayo report $(or $(RUN),runs/latest)

mlperf: $(ready) ## analyse public results of MLPerf Training [ARGS='--data FOLDER']
	$(bin)/ensayo mlperf $(ARGS)

export: $(ready) ## convert a finished run for another tool: TO=mlperf|perfetto|hta|chakra|tensorboard|csv [RUN=runs/latest]
	$(bin)/ensayo export $(or $(RUN),runs/latest) --to $(or $(TO),$(error which format? write make export TO=perfetto))

doctor: $(ready) ## report what this machine can emulate
	$(bin)/ensayo doctor

calibrate: $(ready) ## measure the CPU cost of messages and the possible link rates on this host
	$(bin)/ensayo calibrate $(if $(ENGINE),--engine $(ENGINE))

images: $(ready) ## build the node image
	$(bin)/ensayo images

test: $(ready) ## run the tests that this machine can run, without the slow ones
	if docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then $(bin)/ensayo images; fi
	$(in_memory) $(bin)/pytest -m "not slow and not serial" --numprocesses auto --dist worksteal
	$(in_memory) $(bin)/pytest -m "not slow and serial"

test-all: test ## run all tests: those of `make test`, then the slow ones
	$(in_memory) $(bin)/pytest -m "slow and not serial" --numprocesses auto --dist worksteal
	$(in_memory) $(bin)/pytest -m "slow and serial"

fuzz-inputs: $(ready) ## search for inputs that crash a reader, guided by coverage [SECONDS=600 TARGET="log csv"]
	$(bin)/python tests/fuzz/run_fuzzers.py --seconds $(or $(SECONDS),600) $(if $(TARGET),--target $(TARGET))

test-docker: $(ready) images ## run the tests in containers; a missing engine is an error
	ENSAYO_REQUIRE_DOCKER=1 $(in_memory) $(bin)/pytest -m docker

test-gpu: $(ready) ## run the tests on a CUDA device
	$(bin)/pip install --quiet --editable ".[gpu]"
	$(in_memory) $(bin)/pytest -m gpu

test-torch: test-torch-models ## run all tests that need PyTorch: layers, models, users' modules and commands
	$(in_memory) $(torch_bin)/pytest -m "torch and not serial" --numprocesses auto --dist worksteal tests/commands
	$(in_memory) $(torch_bin)/pytest -m "torch and serial"

test-torch-models: $(torch_ready) ## run the tests that need PyTorch, without those of users' commands
	$(in_memory) $(torch_bin)/pytest -m "torch and not serial" --numprocesses auto --dist worksteal --ignore tests/commands

check: $(ready) ## lint, format, types, imports, avoided words, generated code
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/python .ci/check-words
	PYTHON=$(bin)/python .ci/check-proto

audit: $(ready) $(audit_ready) ## look up known vulnerabilities of all installed packages; exit code 3 of .ci/audit: not audited
	$(audit_bin)/python .ci/audit

sbom: $(ready) $(audit_ready) ## write the packages in the node image to build/node-image.spdx.json, and validate the file
	@mkdir -p build
	$(bin)/ensayo images --sbom build/node-image.spdx.json
	$(audit_bin)/pyspdxtools --infile build/node-image.spdx.json

bench: $(ready) ## measure this machine: codec, predicted steps, start-up of engines [ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.machinery $(ARGS)

bench-auto: $(ready) ## compare strategy auto with the best fixed strategy in virtual time [ARGS='--cases jitter' ARGS=--write]
	$(bin)/python -m benchmarks.auto $(ARGS)

bench-checkpoints: $(ready) ## measure how fast checkpoints are written and read [ARGS='--folder /data --write "my machine"']
	$(bin)/python -m benchmarks.checkpoints $(ARGS)

bench-codecs: $(if $(TORCH),$(torch_ready),$(ready)) ## measure how fast compressors are on one core [TORCH=1 ARGS='--write "my machine"']
	$(if $(TORCH),$(torch_bin),$(bin))/python -m benchmarks.codecs $(ARGS)

bench-convergence: $(ready) ## measure reference convergence points in virtual time [WORKLOADS=quickstart ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.convergence $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(ARGS)

bench-diloco-bandwidth: $(ready) ## find the bandwidths for 95 % compute utilisation of a published table [ARGS='--engine docker --write "my machine"']
	$(bin)/python -m benchmarks.diloco_bandwidth $(ARGS)

bench-endurance: $(ready) ## measure what interrupted and long runs leave on this host, as root [ROWS=starts,disk ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.endurance $(if $(ROWS),--rows $(ROWS)) $(ARGS)

bench-faults: $(ready) ## kill each role in each phase under each strategy and policy [ARGS='--cells "ring:*:worker:*" --write "my machine"']
	$(bin)/python -m benchmarks.faults $(ARGS)

bench-fidelity: $(ready) ## compare what is declared with what containers get [ROWS=incast,loss ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.fidelity $(if $(ROWS),--rows $(ROWS)) $(ARGS)

bench-protection: $(ready) ## measure the price of authentication tags and of TLS between nodes [ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.transport.protection $(ARGS)

bench-real-cluster: $(ready) ## compare step times of a real cluster with their rehearsal [ARGS='--engine docker --write "my machine"']
	$(bin)/python -m benchmarks.real_cluster $(ARGS)

bench-recovery: $(ready) ## kill workers: times of recovery, and a training with 100 kills [ARGS='--engine local --write "my machine"']
	$(bin)/python -m benchmarks.recovery $(ARGS)

bench-compute: $(torch_ready) ## compare time and memory of training steps with PyTorch [ARGS='--threads 4 --write "my machine"']
	$(torch_bin)/python -m benchmarks.compute $(ARGS)

bench-modules: $(torch_ready) ## compare modules of users in Ensayo with plain PyTorch [ARGS='--rounds 400']
	$(torch_bin)/python -m benchmarks.compute.user_module_times $(ARGS)

bench-commands: $(torch_ready) ## measure users' training commands in containers [ARGS='--groups pacing --write "my machine"']
	$(torch_bin)/python -m benchmarks.commands $(ARGS)

bench-overlap: $(torch_ready) ## measure the overlap of exchange and compute [ARGS='--engine docker --write "my machine"']
	$(torch_bin)/python -m benchmarks.overlap $(ARGS)

# gloo comes with PyTorch, which is installed only when asked for.
bench-transport: $(ready) $(if $(TORCH),$(torch_ready)) ## compare the data planes with gloo and the links' bound [ROWS=unshaped,pair TORCH=1 ARGS='--write "my machine"']
	$(bin)/python -m benchmarks.transport $(if $(ROWS),--rows $(ROWS)) $(ARGS)

bench-repeats: $(ready) ## repeat one short trial in containers; every verdict must be valid [COUNT=20]
	PYTHON=$(bin)/python .ci/none-flagged $(or $(COUNT),20)

bench-report: $(ready) ## report a run of 3.2 million steps, as large as a study gets here [ARGS='--trials 20 --write "my machine"']
	$(bin)/python -m benchmarks.report $(ARGS)

proto: $(ready) ## generate services/wire from proto/
	$(bin)/python -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. --grpc_python_out=. proto/services/wire/*.proto

clean: ## remove what make built; runs/ stays
	rm -rf .venv .venv-audit .venv-torch build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Neither tool is needed to develop Ensayo.
$(audit_ready): Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet pip-audit==2.10.1 spdx-tools==0.8.5
	@touch $@

# Both environments hold Ensayo and its development tools. PyTorch has an environment of its own, because it is large and
# the package does not need it.
# --group needs pip 25.1; the first pip in an environment is as old as its interpreter.
$(ready) $(torch_ready): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ensayo needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) cannot make virtual environments (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --editable . --group dev $(if $(filter $(torch_ready),$@),torch==2.13.0)
	@touch $@
