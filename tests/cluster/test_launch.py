"""Commands that start a cluster on other hosts, its certificates, and refused addresses."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call

from suite.cluster import dask_settings, hosts, launch
from suite.cluster.messages import WorkerDescription, encode
from suite.core.errors import UsageError
from suite.hardware.device import Device
from suite.results.resume import code_digest

yaml = pytest.importorskip("yaml", reason="dask is not installed: pip install '.[cluster]'")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(dask_settings.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_certificate_is_made_once_and_its_key_is_private(folder: Path) -> None:
    assert dask_settings.make_certificate() == folder
    key = (folder / "key.pem").read_text()
    assert (folder / "key.pem").stat().st_mode & 0o077 == 0
    dask_settings.make_certificate()
    assert (folder / "key.pem").read_text() == key
    settings = yaml.safe_load((folder / "dask.yaml").read_text())["distributed"]
    assert settings["comm"]["require-encryption"] is True
    assert settings["comm"]["tls"]["scheduler"]["key"] == str(folder / "key.pem")


def test_a_certificate_that_is_about_to_end_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_settings, "DAYS", 3)
    dask_settings.make_certificate()
    old = (folder / "certificate.pem").read_text()
    monkeypatch.setattr(dask_settings, "DAYS", 300)
    dask_settings.make_certificate()
    assert (folder / "certificate.pem").read_text() != old


@pytest.mark.parametrize("address", ["tcp://h1:8786", "http://h1:8786", "h1", "tls://h1", "tls://h1:8786/x", "a b:1"])
def test_an_address_without_tls_or_port_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"--cluster .*(--insecure|must be tls://HOST:PORT)"):
        dask_settings.checked(address, insecure=False)


def test_an_address_without_tls_is_taken_if_asked_for() -> None:
    assert dask_settings.checked("tcp://h1:1", insecure=True) == "tcp://h1:1"
    assert dask_settings.checked("h1:8786", insecure=False) == "tls://h1:8786"
    assert dask_settings.checked("tls://[fe80::1]:8786", insecure=True) == "tls://[fe80::1]:8786"


def test_tls_without_a_certificate_is_an_error_that_says_where_it_should_be(folder: Path) -> None:
    with pytest.raises(UsageError, match=rf"{folder}/certificate.pem cannot be read: copy the folder"):
        dask_settings.security("tls://h1:8786")


@pytest.mark.slow(seconds=5)
def test_dask_ssh_gets_a_command_that_it_can_run(folder: Path) -> None:
    """`dask ssh` puts the option's text before `-m`, and all of it between single quotes."""
    line = launch.over_ssh(["h1", "h2"]).splitlines()[0]
    words = shlex.split(line)
    assert words[:2] == ["dask", "ssh"]
    assert words[-2:] == ["h1", "h2"]
    python = words[words.index("--remote-python") + 1]
    assert "'" not in python
    worker = words[words.index("--remote-dask-worker") + 1]
    asked = subprocess.run([*shlex.split(python), "-m", worker, "--help"], capture_output=True, text=True, check=True)
    assert "once a host" in asked.stdout
    assert f"DASK_CONFIG={folder}/dask.yaml" in python


def test_the_batch_script_is_a_script_that_starts_a_process_on_each_node(folder: Path) -> None:
    script = launch.slurm()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert f"srun {sys.executable} -m {launch.HOST_MAIN} " in script
    assert f"export DASK_CONFIG={folder}/dask.yaml" in script


def test_the_manifest_has_a_scheduler_and_a_worker_pod_on_each_node() -> None:
    service, scheduler, workers = yaml.safe_load_all(launch.kubernetes("registry/suite:1"))
    assert (service["kind"], scheduler["kind"], workers["kind"]) == ("Service", "Deployment", "DaemonSet")
    for each in (scheduler, workers):
        assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "registry/suite:1"
        assert all(isinstance(word, str) for word in container["command"])
    assert service["spec"]["selector"] == scheduler["spec"]["selector"]["matchLabels"]
    assert container["command"][-1] == f"tls://{service['metadata']['name']}:{dask_settings.PORT}"


def test_the_manifest_follows_the_schema_of_kubernetes() -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for each in yaml.safe_load_all(launch.kubernetes("registry/suite:1")):
        schema.validate(each, schema.latest_version(), strict=True)


def test_one_way_to_start_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "cluster", "start", "--slurm", "--hosts", "a") == 2
    assert "needs one of --local N, --hosts" in capsys.readouterr().err
    assert call(monkeypatch, "cluster", "start", "--slurm", "--insecure") == 2
    assert "--insecure is for --local only" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--gpus 2", "--once torch", "--dump ptx", "--profile ncu"])
def test_options_of_this_host_are_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "sum", "--cluster", "h1:1", *option.split()) == 2
    assert f"--cluster: leave out {option.split()[0]}, which applies to this host only" in capsys.readouterr().err


class FakeClient:
    """A cluster of an H100 and two H200, one of which has other code, with a scheduler of these settings."""

    def __init__(self, allowed_failures: int = 0) -> None:
        self._allowed_failures = allowed_failures

    def run_on_scheduler(self, function: object) -> int:
        return self._allowed_failures

    def run(self, function: object, *_: str, workers: list[str] | None = None, on_error: str = "") -> object:
        if workers is not None:
            return {workers[0]: json.dumps({"of": workers[0]})}
        device = {"a": "NVIDIA H100", "b": "NVIDIA H200", "c": "NVIDIA H200"}
        code = {"a": code_digest(), "b": code_digest(), "c": "older"}
        return {
            each: encode(
                WorkerDescription(
                    each, f"host-{each}", f"GPU-{each}", Device("cuda", 0, name, (9, 0)), 80, code[each], ""
                )
            )
            for each, name in device.items()
        }


def survey(monkeypatch: pytest.MonkeyPatch, model: str | None, client: FakeClient | None = None) -> hosts.Survey:
    pytest.importorskip("distributed", reason="dask distributed is not installed: pip install '.[cluster]'")
    monkeypatch.setattr(hosts, "connected", lambda address: contextlib.nullcontext(client or FakeClient()))
    return hosts.survey("tls://h:1", model, "")


def test_a_run_uses_the_devices_of_one_model_that_have_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(monkeypatch, "nvidia-h200")
    assert (found.device.name, found.devices, found.hosts, found.memory_bytes) == ("NVIDIA H200", 1, 1, 80)
    assert found.environment["of"] == "b"
    assert found.device.results_folder.name == "nvidia-h200"


@pytest.mark.parametrize("model", [None, "cuda", "cpu", "nvidia-b200"])
def test_a_run_on_a_cluster_of_several_models_names_one(model: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"name one model by --device; there are nvidia-h100 \(1\), nvidia-h200 \(1\)"):
        survey(monkeypatch, model)


def test_a_scheduler_that_runs_lost_tasks_again_by_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="its scheduler must be started with DASK_CONFIG="):
        survey(monkeypatch, "nvidia-h200", FakeClient(allowed_failures=3))


def test_a_cluster_whose_code_is_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "code_digest", lambda: "newer")
    with pytest.raises(UsageError, match="host-a has different code of the suite or of a kernel"):
        survey(monkeypatch, None)
