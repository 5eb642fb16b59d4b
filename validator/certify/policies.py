"""Write the demands of a cluster as policies of cosign, jq, policy-controller and Kyverno.

cosign and Kyverno ask a policy about each statement, and every one must satisfy it. policy-controller is
content with one that does. jq sees all of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import jinja2
import yaml

from ..compat.facts import UnknownGpu
from ..compat.hardware import gpu
from ..errors import InputError
from ..model.codec import TOLERANCE
from ..model.record import PACKAGES
from ..model.spec import PREFIX
from ..model.verdict import REQUIRED_CHECKS
from ..registry.names import Repository
from ..versions import ComputeCapability, DriverRelease
from .statement import LIMITS, PREDICATE
from .trust import Signatory, TrustFile, public_pem

_FULCIO, _REKOR = "https://fulcio.sigstore.dev", "https://rekor.sigstore.dev"
_NAME = "tensorflow-gpu-matrix-certificate"
_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader(__package__), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
)  # fmt: skip
_KEY_FILE = "release.pub"
#: The entries of a predicate's configuration that a policy reads.
_ENTRIES = ("image", "host", "record", "certificate")


def policy(format_: str, demands: Demands, repository: Repository | None) -> str:
    """Return a policy as text. format_: one of `FORMATS`. repository: of the images.

    Raises InputError if the format needs a repository and there is none.
    """
    return FORMATS[format_](demands, repository)


def _cosign(demands: Demands, repository: Repository | None) -> str:
    used = f"{_command(demands, repository)} --policy FILE"
    text = _rego(demands, "signature", "allow")
    return _comment(demands.signatory, "Each certificate of the image must satisfy this.", used) + text


def _jq(demands: Demands, repository: Repository | None) -> str:
    used = f"{_command(demands, repository)} | jq --slurp --exit-status --from-file FILE"
    wanted = json.dumps(demands.document())
    text = _TEMPLATES.get_template("certificate.jq").render(wanted=wanted)
    return _comment(demands.signatory, "One certificate must be good, without a newer failure.", used) + text


def _policy_controller(demands: Demands, repository: Repository | None) -> str:
    images = _images(repository)
    signatory = demands.signatory
    if signatory.key is not None:
        signer: dict[str, Any] = {"key": {"data": public_pem(signatory.key), "hashAlgorithm": "sha256"}}
    else:
        identity = {"issuer": signatory.issuer, "subject": signatory.identity}
        signer = {"keyless": {"url": _FULCIO, "identities": [identity]}, "ctlog": {"url": _REKOR}}
    rego = {"type": "rego", "data": _rego(demands, "sigstore", "isCompliant")}
    return _yaml(
        {
            "apiVersion": "policy.sigstore.dev/v1beta1",
            "kind": "ClusterImagePolicy",
            "metadata": {"name": _NAME},
            "spec": {
                "images": [{"glob": image} for image in images],
                "mode": "enforce",
                "authorities": [
                    {
                        "name": "release",
                        **signer,
                        "signatureFormat": "bundle",
                        "attestations": [{"name": "certificate", "predicateType": PREDICATE, "policy": rego}],
                    }
                ],
            },
        }
    )


def _kyverno(demands: Demands, repository: Repository | None) -> str:
    images = _images(repository)
    signatory = demands.signatory
    if signatory.key is not None:
        signer: dict[str, Any] = {
            "keys": {"publicKeys": public_pem(signatory.key), "rekor": {"ignoreTlog": True, "url": _REKOR}}
        }
    else:
        signer = {
            "keyless": {
                "issuer": signatory.issuer, "subject": signatory.identity, "rekor": {"url": _REKOR}
            }
        }  # fmt: skip
    attestation = {
        "type": PREDICATE,
        "attestors": [{"count": 1, "entries": [signer]}],
        "conditions": [{"all": list(_conditions(demands))}],
    }
    return _yaml(
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": _NAME},
            "spec": {
                "background": False,
                "webhookConfiguration": {"failurePolicy": "Fail", "timeoutSeconds": 30},
                "rules": [
                    {
                        "name": "certificate",
                        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                        "verifyImages": [
                            {
                                "type": "SigstoreBundle",
                                "imageReferences": list(images),
                                "failureAction": "Enforce",
                                "mutateDigest": True,
                                "verifyDigest": True,
                                "required": True,
                                "attestations": [attestation],
                            }
                        ],
                    }
                ],
            },
        }
    )


#: Programs that can't enforce a certificate, and what stands in the way.
UNABLE = {
    "connaisseur": (
        "Connaisseur can't verify a certificate: its cosign validator looks for a signature of the image, as"
        " `cosign sign` of version 2 stores it under the tag sha256-….sig, and reads no attestations. A"
        " certificate is an attestation, a Sigstore bundle that refers to the image"
    )
}


def check_format(format_: str) -> None:
    """Raise InputError for a program that can't enforce a certificate."""
    if why := UNABLE.get(format_):
        raise InputError(why, hint=f"use a format that checks certificates: {', '.join(FORMATS)}")


#: The function that writes each format.
FORMATS: dict[str, Callable[[Demands, Repository | None], str]] = {
    "cosign": _cosign,
    "jq": _jq,
    "policy-controller": _policy_controller,
    "kyverno": _kyverno,
}


def _conditions(demands: Demands) -> list[dict[str, Any]]:
    """Return the conditions of Kyverno, whose variables are the fields of the predicate."""

    def part(name: str, field: str) -> str:
        return f"configuration[?name=='{name}'].annotations.{field} | [0]"

    gpus = "configuration[?name=='host'].annotations.gpus[].compute_capability"
    branches = "|".join(map(str, demands.drivers))
    spec, issued = part("image", "spec"), part("certificate", "issued")
    measured = part("record", "finished")
    own = f"configuration[?starts_with(name, '{PREFIX}') && annotations.required].name"
    tolerance = f"{int(TOLERANCE.total_seconds())}s"
    found: list[tuple[object, str, object]] = [
        ("{{ result }}", "AnyIn", ["PASSED", "WARNED"]),
        # The conditions below look at the first entry of a name, so there must not be a second one.
        *((f"{{{{ length(configuration[?name=='{name}']) }}}}", "Equals", 1) for name in _ENTRIES),
        (f"{{{{ {part('certificate', 'fixture')} }}}}", "Equals", demands.fixtures),
        (f"{{{{ regex_match('^({branches})[.]', {part('host', 'driver')}) }}}}", "Equals", True),
        (f"{{{{ length({gpus}) }}}}", "GreaterThan", 0),
        (f"{{{{ {gpus} }}}}", "AllIn", [str(one) for one in demands.capabilities]),
        # A certificate is about one compute capability. All GPUs have the same one if these two are equal.
        (f"{{{{ min({gpus}) == max({gpus}) }}}}", "Equals", True),
        (list(REQUIRED_CHECKS), "AllIn", "{{ passedTests }}"),
        (f"{{{{ !contains({spec}, '_') || contains(passedTests, '{PACKAGES}') }}}}", "Equals", True),
        (f"{{{{ {own} }}}}", "AllIn", "{{ passedTests }}"),
        (f"{{{{ time_after({part('certificate', 'expires')}, time_now_utc()) }}}}", "Equals", True),
        (f"{{{{ time_after(time_add(time_now_utc(), '{tolerance}'), {issued}) }}}}", "Equals", True),
        (f"{{{{ time_after(time_add({issued}, '{tolerance}'), {measured}) }}}}", "Equals", True),
    ]
    if demands.max_age is not None:
        until = f"time_add({measured}, '{int(demands.max_age.total_seconds()) // 3600}h')"
        found.append((f"{{{{ time_after({until}, time_now_utc()) }}}}", "Equals", True))
    conditions = [{"key": key, "operator": operator, "value": value} for key, operator, value in found]
    codes = f"configuration[?name=='{LIMITS}'].annotations.{LIMITS}[].code"
    conditions += [
        {
            "key": f"{{{{ contains({codes}, '{code}') }}}}",
            "operator": "Equals",
            "value": False,
            "message": f"the trust file refuses the limit {code}",
        }
        for code in demands.refuse_limits
    ]
    return conditions


def _rego(demands: Demands, package: str, rule: str) -> str:
    wanted = json.dumps(demands.document(), indent=4)
    return _TEMPLATES.get_template("certificate.rego").render(
        package=package, rule=rule, wanted=wanted, limited=demands.max_age is not None
    )


def _images(repository: Repository | None) -> tuple[str, str]:
    if repository is None:
        raise InputError("this format needs --registry: the repository whose images the policy is about")
    return f"{repository}:*", f"{repository}@*"


def _command(demands: Demands, repository: Repository | None) -> str:
    """Return the command that verifies the signatures."""
    signatory = demands.signatory
    if signatory.key is not None:
        signer = ["--key", _KEY_FILE, "--insecure-ignore-tlog"]
    else:
        signer = [
            "--certificate-identity", str(signatory.identity),
            "--certificate-oidc-issuer", str(signatory.issuer),
        ]  # fmt: skip
    image = f"{repository or 'REGISTRY/NAME'}@sha256:…"
    return f"cosign verify-attestation {shlex.join([*signer, '--type', PREDICATE])} {image}"


def _comment(signatory: Signatory, rule: str, command: str) -> str:
    lines = ["Written by `validator trust export`.", rule, command]
    if signatory.key is not None:
        lines += [f"{_KEY_FILE}:", *public_pem(signatory.key).splitlines()]
    # A name in the trust file must not end the comment.
    return "".join(f"# {part}\n" for line in lines for part in line.splitlines())


def _yaml(document: dict[str, Any]) -> str:
    head = "# Written by `validator trust export`.\n"
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


# Collect the demands that a cluster makes on the certificate of an image.


@dataclass(frozen=True)
class Demands:
    """The demands on a certificate.

    signatory: who must have signed it. drivers: the driver branches of the cluster. capabilities: the compute
    capabilities of its GPUs. max_age: the highest age of the measurement, or None. fixtures: True to accept
    only certificates that a test made up. refuse_limits: codes of limits that no certificate may have.
    """

    signatory: Signatory
    drivers: tuple[int, ...]
    capabilities: tuple[ComputeCapability, ...]
    max_age: timedelta | None = None
    fixtures: bool = False
    refuse_limits: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the demands as JSON, for policies in languages that can read it."""
        return {
            "predicateType": PREDICATE,
            "drivers": [str(driver) for driver in self.drivers],
            "capabilities": [str(one) for one in self.capabilities],
            "checks": list(REQUIRED_CHECKS),
            "addedPackages": PACKAGES,
            "ownChecks": PREFIX,
            "refusedLimits": list(self.refuse_limits),
            "fixture": self.fixtures,
            "maxAgeSeconds": None if self.max_age is None else int(self.max_age.total_seconds()),
            "toleranceSeconds": int(TOLERANCE.total_seconds()),
        }


def demands(
    trust: TrustFile,
    drivers: Sequence[str],
    gpus: Sequence[str],
    max_age: timedelta | None = None,
    *,
    fixtures: bool = False,
) -> Demands:
    """Return what a cluster demands.

    drivers: releases or branches. gpus: models or compute capabilities. Raises InputError if the trust file
    does not say who signs certificates, for names that are not known, and for a throw-away key without
    `fixtures`.
    """
    signatory = trust.release
    if signatory is None:
        raise InputError(
            "the trust file does not say who signs certificates, so there is nobody to trust",
            hint="name the key or the identity under `release`",
        )
    if signatory.throw_away and not fixtures:
        raise InputError(
            "the release key of the trust file is a throw-away key, which only signs what tests make up",
            hint="use --fixtures for a test",
        )
    if fixtures and not signatory.throw_away:
        raise InputError("--fixtures needs a throw-away key under `release` in the trust file")
    return Demands(
        signatory,
        tuple(sorted({_branch(driver) for driver in drivers})),
        tuple(sorted({_capability(model) for model in gpus})),
        max_age,
        fixtures,
        trust.refuse_limits,
    )


def _branch(text: str) -> int:
    try:
        return DriverRelease.parse(text).branch
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None


def _capability(text: str) -> ComputeCapability:
    try:
        return ComputeCapability.parse(text)
    except ValueError:
        pass
    try:
        return gpu(text).compute_capability
    except UnknownGpu as error:
        raise InputError(f"--gpu: {error}", hint=error.hint) from None
