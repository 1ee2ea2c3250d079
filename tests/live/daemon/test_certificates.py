"""TLS of the scheduler: it shows its certificate, and a renewed one without a restart."""

import asyncio
import shutil
import ssl
import subprocess

import httpx
import pytest

from leasehold.config.load import load_config
from leasehold.daemon.http.certificate import CertificateReloader
from leasehold_testing.certificates import write_certificate, write_key
from scheduler.errors import ConfigError


def make_certificate(folder, days=30):
    """Make or replace a certificate for 127.0.0.1 and its key; return it as it is sent."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days {days} "
        f"-keyout {key}.new -out {cert}.new -subj /CN=127.0.0.1 "
        "-addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    for path in (cert, key):
        path.with_name(f"{path.name}.new").replace(path)
    return ssl.PEM_cert_to_DER_cert(cert.read_text())


def shown_certificate(url):
    """Return the certificate that a server shows to a new connection."""
    host, port = url.removeprefix("https://").split(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_it_speaks_tls_and_shows_a_renewed_certificate(make_config, daemon, tmp_path, caplog):
    first = make_certificate(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    async def shows(url, expected):
        async with asyncio.timeout(30):
            while await asyncio.to_thread(shown_certificate, url) != expected:  # noqa: ASYNC110 - asks a server
                await asyncio.sleep(0.2)

    async def scenario():
        config = make_config(server__tls_cert=cert, server__tls_key=key)
        async with daemon(config) as (running, _):
            assert running.url.startswith("https://127.0.0.1:")
            trusted = ssl.create_default_context(cafile=str(cert))
            kept = httpx.Limits(keepalive_expiry=600)
            async with httpx.AsyncClient(
                base_url=running.url, verify=trusted, limits=kept
            ) as client:
                assert (await client.get("/healthz")).status_code == 200
                second = make_certificate(tmp_path)
                assert second != first
                await shows(running.url, second)
                assert (await client.get("/healthz")).status_code == 200, "a connection of before"
            cert.write_text("half a file")
            async with asyncio.timeout(30):
                while "the certificate of before stays" not in caplog.text:  # noqa: ASYNC110 - a log has no events
                    await asyncio.sleep(0.1)
            await shows(running.url, second)
            await shows(running.url, make_certificate(tmp_path))

    asyncio.run(scenario())


def test_a_certificate_that_ends_is_told_once_and_one_that_has_ended_is_not_taken(tmp_path, caplog):
    caplog.set_level("INFO")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = write_key(key)
    write_certificate(cert, made, for_s=3600.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    reloader = CertificateReloader(context=context, certificate=str(cert), key=str(key))
    for _ in range(3):
        reloader.look()
    (told,) = caplog.messages
    assert f"'{cert}' ends at " in told
    write_certificate(cert, made, for_s=-60.0)
    for _ in range(3):
        reloader.look()
    assert len(caplog.messages) == 2
    assert f"'{cert}' ended at" in caplog.messages[1]
    assert "the certificate of before stays" in caplog.messages[1]
    write_certificate(cert, made)
    reloader.look()
    assert len(caplog.messages) == 3
    assert "was loaded" in caplog.messages[2]


@pytest.mark.parametrize(
    ("for_s", "said"), [(-60.0, "ended at"), (3600.0, "ends at"), (30 * 86_400.0, "")]
)
def test_the_check_of_a_configuration_says_when_its_certificate_ends(tmp_path, for_s, said):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(cert, write_key(key), for_s=for_s)
    flags = {"server.tls_cert": ("--tls-cert", str(cert)), "server.tls_key": ("", str(key))}
    told = [one for one in load_config(environment={}, flags=flags).warnings if "tls_cert" in one]
    assert [said in one for one in told] == [True] * bool(said)


def test_the_check_of_a_configuration_names_a_missing_key_file_and_an_odd_address(tmp_path):
    flags = {"secrets.key_file": ("", str(tmp_path / "none"))}
    (told,) = load_config(environment={}, flags=flags).warnings
    assert f"secrets.key_file: there is no file '{tmp_path / 'none'}'" in told
    assert load_config(environment={}, flags=flags, elsewhere=True).warnings == ()
    flags = {"server.advertise": ("--advertise", "scheduler-1:8642")}
    with pytest.raises(ConfigError, match="'scheduler-1:8642' is no address; give one as https"):
        load_config(environment={}, flags=flags)
