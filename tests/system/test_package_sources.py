"""Package sources are read from the clients' own configuration and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.system.package_sources import PackageSources, host_sources

SECRET = "https://user:secret@index.example/simple"


def read(tmp_path: Path, environment: dict[str, str], pip: str = "", uv: str = "") -> PackageSources:
    pip_file, uv_file = tmp_path / "pip.conf", tmp_path / "uv.toml"
    pip_file.write_text(pip)
    uv_file.write_text(uv)
    return host_sources(environment, (pip_file,), (uv_file,))


def test_without_configuration_the_clients_defaults_apply(tmp_path: Path) -> None:
    sources = read(tmp_path, {})
    assert (sources.index_url, sources.extra_index_urls, dict(sources.proxies)) == (None, (), {})


@pytest.mark.parametrize(
    ("environment", "pip", "uv", "index"),
    [
        ({}, "[global]\nindex-url = https://pip.example/simple", "", "https://pip.example/simple"),
        ({}, "[global]\nindex-url = https://a.example\n[install]\nindex-url = https://b.example", "", "https://b.example"),
        ({}, "[global]\nindex_url = https://pip.example/simple", "", "https://pip.example/simple"),
        ({"PIP_INDEX_URL": "https://env.example"}, "[global]\nindex-url = https://a.example", "", "https://env.example"),
        ({}, "[global]\nindex-url = https://a.example", 'index-url = "https://uv.example"', "https://uv.example"),
        ({}, "", '[pip]\nindex-url = "https://uv.example"', "https://uv.example"),
        ({}, "", '[[index]]\nurl = "https://uv.example"\ndefault = true', "https://uv.example"),
        ({"PIP_INDEX_URL": "https://env.example"}, "", 'index-url = "https://uv.example"', "https://uv.example"),
        ({"UV_INDEX_URL": "https://old.example"}, "", 'index-url = "https://uv.example"', "https://old.example"),
        ({"UV_INDEX_URL": "https://old.example", "UV_DEFAULT_INDEX": "https://new.example"}, "", "", "https://new.example"),
    ],
)  # fmt: skip
def test_the_index_is_the_one_that_the_clients_would_use(
    tmp_path: Path, environment: dict[str, str], pip: str, uv: str, index: str
) -> None:
    assert read(tmp_path, environment, pip, uv).index_url == index


def test_extra_indexes_are_collected_without_local_directories(tmp_path: Path) -> None:
    sources = read(
        tmp_path,
        {"UV_INDEX": "named=https://a.example/simple file:///opt/simple", "PIP_EXTRA_INDEX_URL": SECRET},
        uv='[[index]]\nurl = "https://b.example"\n[[index]]\nurl = "https://c.example"\nexplicit = true',
    )
    # A build can't use a local directory.
    assert sources.extra_index_urls == ("https://a.example/simple", "https://b.example", SECRET)


def test_later_files_take_precedence_and_unreadable_ones_are_skipped(tmp_path: Path) -> None:
    weak, strong, broken = tmp_path / "weak", tmp_path / "strong", tmp_path / "broken"
    weak.write_text("[global]\nindex-url = https://weak.example\ncert = /weak.pem")
    strong.write_text("[global]\nindex-url = https://strong.example")
    broken.write_bytes(b"\xff no section")
    sources = host_sources({}, (weak, strong, broken, tmp_path / "absent"), (broken,))
    assert sources.index_url == "https://strong.example"


def test_the_clients_own_files_are_read(tmp_path: Path) -> None:
    for name, text in {
        ".config/pip/pip.conf": "[global]\nindex-url = https://home.example",
        ".config/uv/uv.toml": 'extra-index-url = ["https://uv.example"]',
        "own.conf": "[global]\nindex-url = https://own.example",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home = {"HOME": str(tmp_path)}
    assert host_sources(home).index_url == "https://home.example"
    assert "https://uv.example" in host_sources(home).extra_index_urls
    assert (
        host_sources(home | {"PIP_CONFIG_FILE": str(tmp_path / "own.conf")}).index_url
        == "https://own.example"
    )
    assert host_sources(home | {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}) == host_sources(
        {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}
    )


def test_the_ca_bundle_and_the_proxies_are_read(tmp_path: Path) -> None:
    bundle, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    bundle.write_text("one")
    other.write_text("two")
    pip = f"[global]\ncert = {other}"
    assert read(tmp_path, {"SSL_CERT_FILE": str(bundle)}, pip).ca_bundle == bundle
    assert read(tmp_path, {}, pip).ca_bundle == other
    assert read(tmp_path, {"SSL_CERT_FILE": str(tmp_path / "absent")}).ca_bundle is None
    sources = read(tmp_path, {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "localhost"})
    assert dict(sources.proxies) == {"https_proxy": "http://proxy.example:3128", "no_proxy": "localhost"}


@pytest.mark.parametrize(
    "content",
    ["pip = 3", "index = 'x'", "index-url = 5", "[[index]]\nurl = 5", "extra-index-url = 'x'", "index = [1]"],
)
def test_a_configuration_of_other_types_is_left_to_uv(tmp_path: Path, content: str) -> None:
    (tmp_path / "uv.toml").write_text(content)
    found = host_sources({}, pip_files=(), uv_files=(tmp_path / "uv.toml",))
    assert (found.index_url, found.extra_index_urls) == (None, ())


def test_uv_gets_these_sources_and_reads_no_configuration(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("one")
    sources = PackageSources(SECRET, ("https://a.example",), bundle, {"https_proxy": "http://p.example"})
    assert sources.uv_environment() == {
        "UV_DEFAULT_INDEX": SECRET,
        "UV_INDEX": "https://a.example",
        "SSL_CERT_FILE": str(bundle),
        "https_proxy": "http://p.example",
        "HTTPS_PROXY": "http://p.example",
        "UV_NO_CONFIG": "1",
    }


def test_a_file_named_by_the_environment_replaces_uv_s_own_files(tmp_path: Path) -> None:
    user, named = tmp_path / ".config" / "uv" / "uv.toml", tmp_path / "named.toml"
    user.parent.mkdir(parents=True)
    user.write_text('index-url = "https://user.example"')
    named.write_text('index-url = "https://named.example"')
    environment = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    assert host_sources(environment).index_url == "https://user.example"
    environment["UV_CONFIG_FILE"] = str(named)
    assert host_sources(environment).index_url == "https://named.example"


def test_an_index_in_a_local_directory_is_not_used(tmp_path: Path) -> None:
    assert read(tmp_path, {"UV_DEFAULT_INDEX": "file:///opt/simple"}).index_url is None


@pytest.mark.parametrize(
    ("address", "shown", "hidden"),
    [
        ("http://name:p@ss@proxy.example:3128", "proxy.example refused", "proxy.example"),
        ("proxy.example:3128", "proxy.example refused", "proxy.example"),
        ("http://[fd00::1]:3128", "fd00::1 refused [os error 111]", "fd00::1"),
    ],
)
def test_the_host_of_an_address_is_hidden_in_any_notation(address: str, shown: str, hidden: str) -> None:
    text = PackageSources(proxies={"https_proxy": address}).redact(shown)
    assert text == shown.replace(hidden, "<hidden>")


def test_an_address_that_extends_another_is_hidden_completely() -> None:
    sources = PackageSources("https://index.example/simple", ("https://index.example/simple/token",))
    assert sources.redact("GET https://index.example/simple/token/six/") == "GET <hidden>/six/"


def test_no_part_of_the_sources_is_ever_shown() -> None:
    sources = PackageSources(SECRET, (SECRET + "2",), None, {"https_proxy": "http://name:word@proxy.example"})
    assert "example" not in repr(sources)
    text = (
        f"GET {SECRET}/six/ via http://name:word@proxy.example, host index.example, https://other.example/x"
    )
    shown = sources.redact(text)
    for hidden in ("secret", "word", "index.example", "proxy.example", "other.example"):
        assert hidden not in shown
    assert shown.startswith("GET ")
