"""Measure one image of a received bundle. `./measure` starts this with the tool that is in the bundle.

Everything but the origin of the image is as in `build-matrix --pull-from`.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec

from ..engines.docker import DockerEngine
from ..engines.endpoint import connect, connect_podman
from ..engines.load import load_from_layout
from ..engines.protocol import ProbeRequest
from ..errors import EXIT_OK, InputError
from ..model import codec
from ..model.spec import image_reference
from ..pipeline.delivered import ReceivedBundle
from ..pipeline.measuring import answer, now, targets
from ..records import record_files
from ..system.files import read_file, write_atomically
from .options import print_status
from .signing import runner_of


def measure_received() -> int:
    """Measure an image, and write its records as JSON Lines.

    The command line names the bundle's directory, the tag, `docker` or `podman`, and the file to write.
    """
    directory, tag, choice, output = sys.argv[1:]
    received = Path(directory)
    bundle = codec.convert(codec.parse(read_file(received / "bundle.json")), ReceivedBundle)
    image = next(image for image in bundle.images if image.tag == tag)
    question, started = image.question, now()
    assert question is not None and image.lock is not None, "`./measure` itself measures such an image"
    lock = read_file(received / image.lock)
    endpoint = connect_podman() if choice == "podman" else connect()
    engine = DockerEngine(endpoint)
    try:
        print_status(f"Engine: {engine.describe()}")
        reference = image_reference(question.image)
        load_from_layout(endpoint, reference, received / "images", image.digest, print_status)
        engine_id = endpoint.client.images.get(reference).id
        if engine_id is None:
            raise InputError(f"{reference}: the engine does not say which image it has loaded")
        hosts = tuple(host.host_class() for host in bundle.hosts)
        runner = runner_of(engine, received / "trust" / "trust.yaml", asked=True)
        records = []
        # One challenge can be answered once, so only the first of several GPU models can be certified.
        for number, target in enumerate(targets(engine.outside(), hosts, by_model=True)):
            request = ProbeRequest(
                read_file(received / image.probe), image.arguments,
                {"lock.txt": lock}, image.timeout_s, target.uuids,
            )  # fmt: skip
            asked = msgspec.structs.replace(question, engine=engine.name, image_digest=image.digest)

            def probe(request: ProbeRequest = request) -> bytes:
                return engine.probe_image(engine_id, request, print_status)

            signs = runner if number == 0 else None
            records.append(answer(asked, probe, target, engine, signs, hosts, started, print_status))
    finally:
        engine.close()
    text = io.StringIO()
    record_files.write(records, text)
    write_atomically(Path(output), text.getvalue().encode())
    for record in records:
        print_status(f"{record.cell}: {record.verdict.value}: {record.reason}")
    return EXIT_OK
